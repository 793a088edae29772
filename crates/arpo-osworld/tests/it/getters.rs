//! Getters give what the guest has, and nothing where it has nothing.

use crate::fake_guest::FakeGuest;
use arpo_core::generation::Generation;
use arpo_osworld::download::{Cache, Sources};
use arpo_osworld::error::GetterError;
use arpo_osworld::getters::{self, Context};
use arpo_osworld::google::Accounts;
use arpo_osworld::guest::{Output, Tab};
use arpo_osworld::state::State;
use arpo_osworld::task::Getter;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::time::{Duration, Instant};

fn get_in(
    guest: &FakeGuest,
    generation: Generation,
    kind: &str,
    fields: Value,
) -> Result<State, GetterError> {
    let folder = tempfile::tempdir().unwrap();
    let sources = Sources { offline: true, ..Sources::default() };
    let cache = Cache::new(folder.path(), sources).unwrap();
    let now = "2025-05-15T12:00:00[UTC]".parse().unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    let (accounts, notes) = (Accounts::default(), RefCell::default());
    let (cache, accounts) = (&cache, &accounts);
    let context = Context { guest, cache, accounts, task: "t", generation, now, deadline, notes };
    let Value::Object(fields) = fields else { panic!("fields are an object") };
    getters::get(&context, &Getter { kind: kind.into(), fields })
}

fn get(guest: &FakeGuest, kind: &str, fields: Value) -> State {
    get_in(guest, Generation::ArpoEra, kind, fields).unwrap()
}

fn json_of(state: &State) -> Value {
    state.json().unwrap().clone()
}

fn with_file(path: &str, content: impl Into<Vec<u8>>) -> FakeGuest {
    let mut guest = FakeGuest::default();
    guest.files.insert(path.into(), content.into());
    guest
}

#[test]
fn files_come_with_their_neighbours() {
    let mut guest = with_file("/a.xlsx", "book");
    guest.files.insert("/a-Sheet1.csv".into(), b"1,2".to_vec());
    let fields =
        json!({"path": ["/a.xlsx", "/a-Sheet1.csv"], "dest": ["b.xlsx", "b-Sheet1.csv"], "multi": true});
    let State::File(file) = get(&guest, "vm_file", fields.clone()) else { panic!("no file") };
    assert_eq!((file.name.as_str(), &*file.bytes), ("b.xlsx", &b"book"[..]));
    assert_eq!(&*file.siblings["b-Sheet1.csv"], b"1,2");
    let mut both = fields;
    both["gives"] = json!([0, 1]);
    assert_eq!(get(&guest, "vm_file", both).each().len(), 2);
    assert_eq!(get(&guest, "vm_file", json!({"path": "/none", "dest": "x"})), State::Null);
}

/// The results of a speed test are called after the day; Verified dates only its own copy.
#[test]
fn a_file_may_have_the_date_in_its_name() {
    let guest = with_file("/Test/Export-2025_05_15.csv", "dated");
    let fields = json!({"path": "/Test/Export-.csv", "dest": "Export-.csv", "time_suffix": true});
    let State::File(file) = get(&guest, "vm_file", fields.clone()) else { panic!("no file") };
    assert_eq!(&*file.bytes, b"dated");
    assert_eq!(get_in(&guest, Generation::Verified, "vm_file", fields.clone()).unwrap(), State::Null);
    let mut month = fields;
    month["time_format"] = json!("%m");
    let guest = with_file("/Test/Export-05.csv", "dated");
    assert!(matches!(get(&guest, "vm_file", month.clone()), State::File(_)));
    month["time_format"] = json!("%!");
    let error = get_in(&guest, Generation::ArpoEra, "vm_file", month).unwrap_err().to_string();
    assert!(error.starts_with("getter vm_file: time_format \"%!\": "), "{error}");
}

#[test]
fn commands_give_their_output() {
    let mut guest = FakeGuest::default();
    guest.outputs.insert("echo".into(), Output { stdout: "out".into(), stderr: "err".into(), returncode: 1 });
    assert_eq!(json_of(&get(&guest, "vm_command_line", json!({"command": "echo hi", "shell": true}))), "out");
    assert_eq!(json_of(&get(&guest, "vm_command_error", json!({"command": ["echo"]}))), "err");
    assert_eq!(get(&guest, "vm_command_line", json!({"command": ["refused"]})), State::Null);
    assert!(get_in(&guest, Generation::ArpoEra, "vm_command_line", json!({})).is_err());
}

#[test]
fn the_most_common_player_is_the_default() {
    let mut guest = FakeGuest::default();
    guest.outputs.insert("video/x-".into(), Output { stdout: "vlc.desktop\n".into(), ..Output::default() });
    guest
        .outputs
        .insert("video/mp4\"".into(), Output { stdout: "totem.desktop\n".into(), ..Output::default() });
    assert_eq!(json_of(&get(&guest, "default_video_player", json!({}))), "vlc.desktop\n");
    assert_eq!(json_of(&get(&FakeGuest::default(), "default_video_player", json!({}))), "unknown");
}

#[test]
fn the_profile_is_read() {
    let preferences = json!({
        "default_search_provider_data": {"template_url_data": {"short_name": "Bing"}},
        "profile": {"name": "Thomas", "default_content_setting_values": {}},
        "webkit": {"webprefs": {"default_font_size": 20}},
        "safebrowsing": {"enhanced": true}, "enable_do_not_track": true, "session": {"restore_on_startup": 5},
        "extensions": {"settings": {"a": {"path": "/x", "manifest": {"name": "X"}}}}
    });
    let guest = with_file("~/.config/google-chrome/Default/Preferences", preferences.to_string());
    for (kind, wanted) in [
        ("default_search_engine", json!("Bing")),
        ("profile_name", json!("Thomas")),
        ("chrome_font_size", json!({"default_font_size": 20})),
        ("enable_enhanced_safety_browsing", json!("true")),
        ("enable_safe_browsing", json!("true")),
        ("enable_do_not_track", json!("true")),
        ("new_startup_page", json!("true")),
        ("data_delete_automacally", json!("true")),
        ("find_unpacked_extension_path", json!(["/x"])),
        ("find_installed_extension_name", json!(["X"])),
    ] {
        assert_eq!(json_of(&get(&guest, kind, json!({}))), wanted, "{kind}");
    }
    let without = FakeGuest::default();
    for (kind, wanted) in [
        ("default_search_engine", json!("Google")),
        ("enable_do_not_track", json!("false")),
        ("new_startup_page", json!("Google")),
        ("bookmarks", json!([])),
        ("enabled_experiments", json!([])),
    ] {
        assert_eq!(json_of(&get(&without, kind, json!({}))), wanted, "{kind}");
    }
    assert_eq!(get(&without, "cookie_data", json!({"dest": "c"})), State::Null);
}

#[test]
fn the_address_bar_is_read() {
    let tree = "<desktop-frame><application name='Google Chrome'><entry name='Address and search bar'>a.com/x/may-weather/12</entry></application></desktop-frame>";
    let guest = FakeGuest { tree: Some(tree.into()), ..FakeGuest::default() };
    assert_eq!(
        json_of(&get(&guest, "active_url_from_accessTree", json!({"goto_prefix": "https://www."}))),
        "https://www.a.com/x/may-weather/12"
    );
    let part = json!({"partIndex": -2, "needDeleteId": false, "returnType": "json", "key": "time"});
    assert_eq!(json_of(&get(&guest, "url_dashPart", part)), json!({"time": "may-weather"}));
    assert_eq!(
        get(
            &FakeGuest { tree: Some("<desktop-frame/>".into()), ..FakeGuest::default() },
            "active_url_from_accessTree",
            json!({})
        ),
        State::Null
    );
    let query = FakeGuest {
        tree: Some(tree.replace("a.com/x/may-weather/12", "a.com/s?from=SEA&amp;to=NYC")),
        ..FakeGuest::default()
    };
    let parsed =
        get(&query, "active_tab_url_parse", json!({"parse_keys": ["from", "to"], "replace": {"to": "end"}}));
    assert_eq!(json_of(&parsed), json!({"from": "SEA", "end": "NYC"}));
}

#[test]
fn pages_are_asked_for_their_texts() {
    let tree = "<f><application name='Google Chrome'><entry name='Address and search bar'>a.com</entry></application></f>";
    let mut guest = FakeGuest { tree: Some(tree.into()), ..FakeGuest::default() };
    guest.tabs.borrow_mut().push(Tab { id: "1".into(), title: "A".into(), url: "https://a.com".into() });
    guest.pages.insert(".price".into(), json!(["5", "7"]));
    let fields = json!({"category": "class", "class_multiObject": {"price": {"1": "second", "4": "none"}}});
    assert_eq!(json_of(&get(&guest, "active_tab_html_parse", fields.clone())), json!({"second": "7"}));
    let later = get_in(&guest, Generation::Verified, "active_tab_html_parse", fields).unwrap();
    assert_eq!(json_of(&later), json!({"second": "7", "none": ""}));
    assert_eq!(
        json_of(&get(&guest, "open_tabs_info", json!({}))),
        json!([{"title": "A", "url": "https://a.com"}])
    );
}

#[test]
fn a_page_is_asked_or_what_it_said_when_the_task_was_written() {
    let fields = json!({
        "url": "https://a.org/",
        "infos": [
            {"action": "inner_text", "selector": "#name"},
            {"action": "click_and_attribute", "selector": ["#link", "#paper"], "attribute": "href"}
        ],
        "backups": ["Old Name", "https://a.org/old"]
    });
    let mut guest = FakeGuest::default();
    guest.pages.insert("location.href".into(), json!("https://a.org/"));
    guest.pages.insert("#name".into(), json!({"value": "New Name"}));
    guest.pages.insert("#link".into(), json!({"value": true}));
    guest.pages.insert("readyState".into(), json!(true));
    // the last element is not there: nothing of what was found counts
    assert_eq!(json_of(&get(&guest, "info_from_website", fields.clone())), fields["backups"]);
    assert!(guest.log().iter().filter(|call| *call == "pause 0.5").count() >= 10);
    guest.pages.insert("#paper".into(), json!({"value": "https://a.org/new"}));
    let found = get(&guest, "info_from_website", fields.clone());
    assert_eq!(json_of(&found), json!(["New Name", "https://a.org/new"]));
    for part in ["#link", "readyState", "#paper"] {
        guest.fails_once.set(Some(part));
        assert_eq!(get(&guest, "info_from_website", fields.clone()), found, "{part}");
        assert_eq!(guest.fails_once.get(), None);
    }
    let without = FakeGuest { refuses: vec!["open tab"], ..FakeGuest::default() };
    assert_eq!(
        json_of(&get(&without, "info_from_website", fields)),
        json!(["Old Name", "https://a.org/old"])
    );
    assert_eq!(get(&without, "info_from_website", json!({"url": "https://a.org/"})), State::Null);
}

#[test]
fn dates_are_relative_to_now() {
    let rules =
        json!({"rules": {"relativeTime": {"from": "this month"}, "expected": {"time": "{month}-weather"}}});
    let state = get(&FakeGuest::default(), "rule_relativeTime", rules);
    assert_eq!(json_of(&state)["expected"]["time"], "may-weather");
}

#[test]
fn a_dead_guest_is_no_missing_file() {
    let guest = FakeGuest { dead: true, ..FakeGuest::default() };
    let error =
        get_in(&guest, Generation::ArpoEra, "vm_file", json!({"path": "/a", "dest": "a"})).unwrap_err();
    assert!(matches!(error, GetterError::Guest(_)), "{error}");
    let unknown = get_in(&guest, Generation::ArpoEra, "no_such", json!({})).unwrap_err();
    assert_eq!(unknown.to_string(), "no getter is called \"no_such\"");
}

#[test]
fn a_file_that_is_not_in_the_cache_is_named_offline() {
    let error = get_in(
        &FakeGuest::default(),
        Generation::ArpoEra,
        "cloud_file",
        json!({"path": "https://a.org/x", "dest": "x.xlsx"}),
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("https://a.org/x") && error.to_string().contains("_x.xlsx"),
        "{error}"
    );
}
