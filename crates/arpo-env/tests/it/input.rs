//! Input as a person gives it: every kind of action does in every profile what it does on a desktop.

use crate::{act, centre_box, click, keys, screens, started, widget, world, write};
use arpo_core::action::{Action, Direction, ModelBox, MouseButton};
use arpo_env::look::ScreenOptions;
use arpo_env::view::Value;
use serde_json::{Value as Json, json};

fn notes() -> Json {
    json!([
        {"type": "world", "name": "empty"},
        {"type": "write_file", "path": "cat", "content": "red tea"},
        {"type": "write_file", "path": "docs/sun", "content": "milk"},
        {"type": "open_file", "path": "cat"},
    ])
}

#[test]
fn typing_goes_where_the_cursor_is_in_any_script() {
    for options in screens() {
        let mut desk = started(options, notes());
        write(&mut desk, "nothing has the keyboard yet");
        assert_eq!(widget(&desk, "editor:text").value, Value::Text("red tea".into()));
        click(&mut desk, "editor:text");
        keys(&mut desk, &["ctrl", "a"]);
        write(&mut desk, "Zürich señora 漢字 Ωμέγα");
        keys(&mut desk, &["ctrl", "s"]);
        assert_eq!(world(&desk, "/files/cat"), Some(json!("Zürich señora 漢字 Ωμέγα")));
    }
}

#[test]
fn keys_edit_text() {
    for options in screens() {
        let mut desk = started(options, notes());
        click(&mut desk, "editor:text");
        let text = |desk: &_| match widget(desk, "editor:text").value {
            Value::Text(text) => text,
            other => panic!("{other:?}"),
        };
        act(&mut desk, Action::Press { key: "home".into() });
        act(&mut desk, Action::Press { key: "delete".into() });
        act(&mut desk, Action::Press { key: "End".into() });
        act(&mut desk, Action::Press { key: "backspace".into() });
        assert_eq!(text(&desk), "ed te");
        act(&mut desk, Action::Press { key: "arrowleft".into() });
        write(&mut desk, "X");
        assert_eq!(text(&desk), "ed tXe");
        keys(&mut desk, &["ctrl", "z"]);
        assert_eq!(text(&desk), "ed te");
        keys(&mut desk, &["ctrl", "a"]);
        keys(&mut desk, &["ctrl", "x"]);
        assert_eq!(text(&desk), "");
        keys(&mut desk, &["ctrl", "v"]);
        keys(&mut desk, &["ctrl", "v"]);
        assert_eq!(text(&desk), "ed teed te");
        act(&mut desk, Action::Press { key: "home".into() });
        act(&mut desk, Action::Keydown { key: "shift".into() });
        act(&mut desk, Action::Press { key: "right".into() });
        act(&mut desk, Action::Press { key: "right".into() });
        act(&mut desk, Action::Keyup { key: "shift".into() });
        keys(&mut desk, &["ctrl", "c"]);
        act(&mut desk, Action::Press { key: "end".into() });
        keys(&mut desk, &["ctrl", "v"]);
        assert_eq!(text(&desk), "ed teed teed");
    }
}

/// A text longer than its window: the wheel moves it, and typing brings the cursor's line into sight.
#[test]
fn long_texts_scroll() {
    let text: Vec<String> = (0..40).map(|line| format!("line {line}")).collect();
    let setup = json!([
        {"type": "write_file", "path": "long", "content": text.join("\n")},
        {"type": "open_file", "path": "long"},
    ]);
    let mut desk = started(ScreenOptions::desktop(640, 480), setup);
    let top = desk.screen().unwrap();
    let start_box = Some(centre_box(&desk, "editor:text"));
    let down = act(&mut desk, Action::Scroll { start_box, direction: Direction::Down });
    assert_ne!(top, down);
    assert_eq!(act(&mut desk, Action::Scroll { start_box, direction: Direction::Up }), top);
    click(&mut desk, "editor:text");
    keys(&mut desk, &["ctrl", "end"]);
    let before = desk.screen().unwrap();
    write(&mut desk, "X");
    assert_ne!(desk.screen().unwrap(), before, "what is typed is seen");
}

#[test]
fn selecting_by_dragging_and_double_click() {
    for options in screens() {
        let mut desk = started(options, notes());
        let [left, top, right, bottom] = widget(&desk, "editor:text").rect.map(f64::from);
        let y = top + (bottom - top).min(22.0) / 2.0;
        let (start_box, end_box) = (ModelBox::point(left + 1.0, y), ModelBox::point(right - 2.0, y));
        act(&mut desk, Action::Select { start_box, end_box });
        write(&mut desk, "all new");
        assert_eq!(widget(&desk, "editor:text").value, Value::Text("all new".into()));
        act(&mut desk, Action::LeftDouble { start_box: ModelBox::point(left + 16.0, y) });
        write(&mut desk, "one");
        assert_eq!(widget(&desk, "editor:text").value, Value::Text("one new".into()));
    }
}

/// What `computer_use` has beyond UI-TARS: everything happens where the pointer is.
#[test]
fn the_pointer_stays_where_it_was_moved() {
    let here = |times| Action::ClickHere { button: MouseButton::Left, times };
    for options in screens() {
        let mut desk = started(options, notes());
        let text = |desk: &_| widget(desk, "editor:text").value;
        let [left, top, right, bottom] = widget(&desk, "editor:text").rect.map(f64::from);
        let y = top + (bottom - top).min(22.0) / 2.0;
        let before = desk.screen().unwrap();
        let end_box = ModelBox::point(right - 2.0, y);
        // before the first move there is no pointer
        assert_eq!(act(&mut desk, here(1)), before);
        assert_eq!(
            act(&mut desk, Action::DragTo { end_box: ModelBox::point(-1.0, y), seconds: 0.5 }),
            before
        );
        act(&mut desk, Action::Hover { start_box: ModelBox::point(left + 1.0, y) });
        act(&mut desk, Action::DragTo { end_box, seconds: 0.5 });
        act(&mut desk, Action::TypeVerbatim { text: "all new".into() });
        assert_eq!(text(&desk), Value::Text("all new".into()));
        act(&mut desk, Action::Hover { start_box: ModelBox::point(left + 16.0, y) });
        act(&mut desk, here(2));
        act(&mut desk, Action::TypeVerbatim { text: "one".into() });
        assert_eq!(text(&desk), Value::Text("one new".into()), "a double click selects a word");
        act(&mut desk, Action::LeftTriple { start_box: ModelBox::point(left + 16.0, y) });
        act(&mut desk, Action::TypeVerbatim { text: "line".into() });
        assert_eq!(text(&desk), Value::Text("line".into()), "a triple click selects the line");
        act(&mut desk, Action::MiddleSingle { start_box: ModelBox::point(left + 16.0, y) });
        assert_eq!(text(&desk), Value::Text("line".into()), "the middle button does nothing here");
        act(&mut desk, Action::Keydown { key: "ctrl".into() });
        act(&mut desk, Action::Press { key: "a".into() });
        act(&mut desk, Action::Keyup { key: "ctrl".into() });
        act(&mut desk, Action::TypeVerbatim { text: "held".into() });
        assert_eq!(text(&desk), Value::Text("held".into()), "a held key counts for the next one");
    }
}

#[test]
fn text_is_typed_verbatim() {
    let mut desk = started(ScreenOptions::desktop(640, 480), notes());
    click(&mut desk, "editor:text");
    keys(&mut desk, &["ctrl", "a"]);
    act(&mut desk, Action::TypeVerbatim { text: "a\nb\\n\n\n".into() });
    assert_eq!(widget(&desk, "editor:text").value, Value::Text("a\nb\\n\n\n".into()));
}

/// Five clicks of the wheel are a scroll of UI-TARS; one click moves by at least a row.
#[test]
fn the_wheel_turns_by_clicks() {
    let text: Vec<String> = (0..60).map(|line| format!("line {line}")).collect();
    let setup = json!([
        {"type": "write_file", "path": "long", "content": text.join("\n")},
        {"type": "open_file", "path": "long"},
    ]);
    let mut desk = started(ScreenOptions::desktop(640, 480), setup);
    let start_box = centre_box(&desk, "editor:text");
    let top = act(&mut desk, Action::Hover { start_box });
    let wheel = |clicks| Action::Wheel { clicks, horizontal: false };
    let scrolled = act(&mut desk, Action::Scroll { start_box: None, direction: Direction::Down });
    assert_eq!(act(&mut desk, wheel(5.0)), top);
    assert_eq!(act(&mut desk, wheel(-5.0)), scrolled);
    assert_eq!(act(&mut desk, wheel(1e9)), top);
    let one = act(&mut desk, wheel(-1.0));
    assert!(one != top && one != scrolled);
    assert_eq!(act(&mut desk, wheel(0.9)), one, "part of a click is none");
}

#[test]
fn a_saved_file_is_there_in_files() {
    for options in screens() {
        let mut desk = started(
            options.clone(),
            json!([{"type": "world", "name": "empty"}, {"type": "open", "application": "editor"}]),
        );
        click(&mut desk, "editor:text");
        write(&mut desk, "milk");
        keys(&mut desk, &["ctrl", "s"]);
        click(&mut desk, "editor:name");
        // a line break at the end submits the dialog
        write(&mut desk, "rose\n");
        assert_eq!(world(&desk, "/files/rose"), Some(json!("milk")));
        if options == ScreenOptions::pocket() {
            click(&mut desk, "home");
        }
        click(&mut desk, "bar:files");
        let start_box = centre_box(&desk, "files:item:rose");
        act(&mut desk, Action::LeftDouble { start_box });
        assert_eq!(widget(&desk, "editor:text").value, Value::Text("milk".into()));
    }
}

#[test]
fn right_click_opens_a_menu_and_escape_or_a_click_elsewhere_closes_it() {
    for options in screens() {
        let mut setup = notes();
        setup.as_array_mut().unwrap().push(json!({"type": "open", "application": "files"}));
        let mut desk = started(options, setup);
        let menu = |desk: &arpo_env::embedded::EmbeddedDesktop| {
            desk.widgets().iter().any(|widget| widget.id == "files:delete:menu")
        };
        for close in
            [Action::Press { key: "esc".into() }, Action::Click { start_box: ModelBox::point(1.0, 1.0) }]
        {
            let start_box = centre_box(&desk, "files:item:cat");
            act(&mut desk, Action::RightSingle { start_box });
            assert!(menu(&desk));
            act(&mut desk, close);
            assert!(!menu(&desk));
        }
        let start_box = centre_box(&desk, "files:item:cat");
        act(&mut desk, Action::RightSingle { start_box });
        click(&mut desk, "files:delete:menu");
        assert!(world(&desk, "/files/cat").is_some(), "a question comes first");
        act(&mut desk, Action::Press { key: "enter".into() });
        assert_eq!(world(&desk, "/files/cat"), None);
    }
}

#[test]
fn a_right_click_presses_nothing() {
    for options in screens() {
        let mut desk = started(options, json!([{"type": "open", "application": "settings"}]));
        let before = world(&desk, "");
        let ids: Vec<String> = desk.widgets().into_iter().map(|widget| widget.id).collect();
        assert!(ids.len() > 5, "{ids:?}");
        for id in ids {
            let start_box = centre_box(&desk, &id);
            act(&mut desk, Action::RightSingle { start_box });
            assert_eq!(world(&desk, ""), before, "{id}");
        }
        assert_eq!(desk.desktop().unwrap().front().unwrap().key(), "settings");
    }
}

#[test]
fn a_file_is_dragged_into_a_folder() {
    for options in screens() {
        let mut setup = notes();
        setup.as_array_mut().unwrap().push(json!({"type": "open", "application": "files"}));
        let mut desk = started(options, setup);
        let (start_box, end_box) =
            (centre_box(&desk, "files:item:cat"), centre_box(&desk, "files:item:docs/"));
        act(&mut desk, Action::Drag { start_box, end_box });
        assert_eq!(world(&desk, "/files/docs~1cat"), Some(json!("red tea")));
    }
}

#[test]
fn sliders_follow_clicks_and_drags_and_toggles_clicks() {
    for options in screens() {
        let mut desk = started(
            options,
            json!([{"type": "set", "path": "/player/volume", "value": 0}, {"type": "open", "application": "player"}]),
        );
        let [left, top, right, bottom] = widget(&desk, "player:volume").rect.map(f64::from);
        let (start_box, end_box) =
            (ModelBox::point(left + 6.0, f64::midpoint(top, bottom)), ModelBox::point(right, bottom - 1.0));
        act(&mut desk, Action::Drag { start_box, end_box });
        assert_eq!(world(&desk, "/player/volume"), Some(json!(10)));
        act(&mut desk, Action::Click { start_box });
        assert_eq!(world(&desk, "/player/volume"), Some(json!(0)));
        let before = world(&desk, "/player/mix");
        click(&mut desk, "player:mix");
        assert_ne!(world(&desk, "/player/mix"), before);
        let start_box = centre_box(&desk, "player:mix");
        act(&mut desk, Action::LeftDouble { start_box });
        assert_ne!(world(&desk, "/player/mix"), before, "two clicks are two changes");
    }
}

#[test]
fn tab_walks_and_enter_presses() {
    for options in screens() {
        let mut desk = started(options, json!([{"type": "open", "application": "shop"}]));
        let product =
            desk.widgets().iter().find(|widget| widget.id.starts_with("shop:product:")).unwrap().id.clone();
        click(&mut desk, &product);
        act(&mut desk, Action::Press { key: "enter".into() });
        click(&mut desk, "shop:name");
        write(&mut desk, "Ana");
        keys(&mut desk, &["tab"]);
        write(&mut desk, "12");
        assert_eq!(widget(&desk, "shop:code").value, Value::Text("12".into()));
        keys(&mut desk, &["enter"]);
        assert_eq!(widget(&desk, "shop:complaint").label, "Code: 4 digits");
        click(&mut desk, "shop:code");
        keys(&mut desk, &["ctrl", "a"]);
        write(&mut desk, "1234\n");
        assert!(desk.widgets().iter().any(|widget| widget.id == "shop:buy"));
    }
}

#[test]
fn wheels_scroll_both_ways() {
    let files: Vec<Json> = (0..30)
        .map(|index| json!({"type": "write_file", "path": format!("f{index:02}"), "content": ""}))
        .chain([json!({"type": "open", "application": "files"})])
        .collect();
    for options in screens() {
        let mut desk = started(options, Json::Array(files.clone()));
        let shown = |desk: &arpo_env::embedded::EmbeddedDesktop| -> Vec<String> {
            desk.widgets().into_iter().map(|widget| widget.id).filter(|id| id.contains(":item:")).collect()
        };
        let first = shown(&desk);
        let start_box = Some(centre_box(&desk, &first[0]));
        act(&mut desk, Action::Scroll { start_box, direction: Direction::Down });
        let second = shown(&desk);
        assert_ne!(first, second);
        for _ in 0..40 {
            act(&mut desk, Action::Scroll { start_box, direction: Direction::Down });
        }
        let last = shown(&desk);
        act(&mut desk, Action::Scroll { start_box, direction: Direction::Up });
        assert_ne!(shown(&desk), last, "the way back is as short as the way there");
        for _ in 0..40 {
            act(&mut desk, Action::Scroll { start_box, direction: Direction::Up });
        }
        assert_eq!(shown(&desk), first);
    }
    let mut desk =
        started(ScreenOptions::desktop(640, 480), json!([{"type": "open", "application": "sheet"}]));
    let start_box = Some(centre_box(&desk, "sheet:cell:A1"));
    act(&mut desk, Action::Scroll { start_box, direction: Direction::Right });
    assert!(!desk.widgets().iter().any(|widget| widget.id == "sheet:cell:A1"));
    act(&mut desk, Action::Scroll { start_box, direction: Direction::Left });
    assert!(desk.widgets().iter().any(|widget| widget.id == "sheet:cell:A1"));
    act(&mut desk, Action::Wheel { clicks: 5.0, horizontal: true });
    assert!(!desk.widgets().iter().any(|widget| widget.id == "sheet:cell:A1"));
    act(&mut desk, Action::Wheel { clicks: -1.0, horizontal: true });
    assert!(desk.widgets().iter().any(|widget| widget.id == "sheet:cell:A1"));
}

#[test]
fn windows_are_dragged_raised_and_closed() {
    let setup = json!([{"type": "open", "application": "mail"}, {"type": "open", "application": "player"}]);
    let options = ScreenOptions { jitter: false, ..ScreenOptions::desktop(1280, 720) };
    let mut desk = started(options, setup);
    let start_box = centre_box(&desk, "title:player");
    let end_box = ModelBox::point(start_box.x1 + 120.0, start_box.y1 + 80.0);
    let before = desk.desktop().unwrap().session.windows.clone();
    act(&mut desk, Action::Drag { start_box, end_box });
    let after = desk.desktop().unwrap().session.windows.clone();
    assert_eq!((after[1].x - before[1].x, after[1].y - before[1].y), (120.0, 80.0));
    assert_eq!(after[0], before[0]);
    let title = desk.widgets().into_iter().find(|widget| widget.id == "title:mail").unwrap();
    let [left, top, ..] = title.rect.map(f64::from);
    act(&mut desk, Action::Click { start_box: ModelBox::point(left + 3.0, top + 3.0) });
    assert_eq!(desk.desktop().unwrap().front().unwrap().key(), "mail");
    keys(&mut desk, &["ctrl", "w"]);
    assert_eq!(desk.desktop().unwrap().front().unwrap().key(), "player");
    click(&mut desk, "close:player");
    assert_eq!(desk.desktop().unwrap().front(), None);
}

#[test]
fn nothing_is_reached_through_a_window_or_a_notice() {
    let setup = json!([{"type": "open", "application": "player"}, {"type": "notice", "text": "Hello"}]);
    for options in screens() {
        let mut desk = started(options, setup.clone());
        let before = desk.desktop().unwrap().world.clone();
        for x in (0..desk.options().width).step_by(14) {
            for y in (0..desk.options().height).step_by(14) {
                let point = ModelBox::point(f64::from(x), f64::from(y));
                let over_button = desk.widgets().iter().any(|widget| {
                    let [left, top, right, bottom] = widget.rect.map(f64::from);
                    widget.id == "notice:ok"
                        && (left..=right).contains(&point.x1)
                        && (top..=bottom).contains(&point.y1)
                });
                if !over_button {
                    act(&mut desk, Action::Click { start_box: point });
                }
            }
        }
        assert_eq!(desk.desktop().unwrap().world, before);
        assert!(desk.desktop().unwrap().session.notice.is_some());
    }
}
