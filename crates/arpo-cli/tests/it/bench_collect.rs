//! The JSON output of `arpo bench collect`.

use crate::env_commands::json;

#[test]
fn both_orders_play_the_same_episodes_and_are_compared() {
    let report =
        json(&["bench", "collect", "--desktops", "3", "--episodes", "7", "--faster", "2000", "--json"]);
    let rows = report["rows"].as_array().unwrap();
    let orders: Vec<&str> = rows.iter().map(|row| row["order"].as_str().unwrap()).collect();
    assert_eq!(orders, ["lock_step", "arrival"]);
    assert_eq!(rows[0]["steps"], rows[1]["steps"]);
    for row in rows {
        assert_eq!((&row["episodes"], &row["lost"]), (&7.into(), &0.into()));
        for share in ["desktop_utilisation", "desktop_utilisation_until_last", "policy_utilisation"] {
            let share = row[share].as_f64().unwrap();
            assert!(share > 0.0 && share <= 1.0, "{row}");
        }
    }
    assert!(report["ratio"].as_f64().unwrap() > 0.0);
}
