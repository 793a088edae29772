//! The pages in a real browser. Skipped, with a message, where no Chromium is installed.
//!
//! `ARPO_VIEW_PICTURES=FOLDER` also keeps pictures of every view, wide and narrow, dark and light.

use crate::chromium::Page;
use crate::fixture::{Served, plan};
use arpo_view::run::Run;
use arpo_view::testing::{Plan, SyntheticRun};
use serde_json::json;
use std::path::PathBuf;

fn number(page: &mut Page, expression: &str) -> f64 {
    page.value(expression).as_f64().unwrap_or(f64::NAN)
}

/// Where the middle of an element is.
fn middle(page: &mut Page, selector: &str) -> (f64, f64) {
    let place = page.value(&format!(
        "(() => {{ const box = document.querySelector({selector:?}).getBoundingClientRect(); \
         return [box.left + box.width / 2, box.top + box.height / 2]; }})()"
    ));
    (place[0].as_f64().unwrap(), place[1].as_f64().unwrap())
}

#[test]
fn curves_appear_and_move_with_a_growing_run() {
    let Some(mut page) = Page::open(1300, 900) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SyntheticRun::start(&folder.path().join("run"), plan(), 3).unwrap();
    for iteration in 0..4 {
        writer.iteration(iteration).unwrap();
    }
    let server = arpo_view::serve_in_background(&folder.path().join("run"), Some(0)).unwrap();
    page.go(&format!("http://{}/", server.address));
    page.wait("document.querySelectorAll('.plot .line').length > 10");
    assert_eq!(page.value("document.getElementById('live').textContent"), "live");
    let curve = "[...document.querySelectorAll('.plot')].find((plot) => plot.textContent.includes('collected episodes')).querySelector('path.line').getAttribute('d')";
    let places = "JSON.stringify([...document.querySelectorAll('.plot')].map((plot) => plot.getBoundingClientRect().top))";
    let (before, places_before) = (page.value(curve), page.value(places));
    writer.iteration(4).unwrap();
    writer.iteration(5).unwrap();
    page.wait(&format!("({curve}) !== {before}"));
    page.wait("[...document.querySelectorAll('.value')].some((one) => one.textContent.startsWith('Iteration5 of 12'))");
    assert_eq!(page.value(places), places_before, "nothing on the page has moved");
    // hovering shows values; dragging zooms all plots, and the zoom is in the address
    let (x, y) = middle(&mut page, ".plot svg[role=img]");
    page.hover((x, y));
    page.wait("!document.querySelector('.tip').hidden && document.querySelector('.tip').textContent.includes('iteration')");
    page.drag((x - 60.0, y), (x + 60.0, y));
    page.wait("location.hash.includes('from=')");
    let shared = page.value("location.href");
    page.go("about:blank");
    page.go(shared.as_str().unwrap());
    page.wait("document.querySelectorAll('.plot .line').length > 10");
    page.wait(
        "![...document.querySelectorAll('button')].find((one) => one.textContent === 'Reset zoom').disabled",
    );
    // the keyboard reaches plots, and takes the zoom back
    page.value("document.querySelector('.plot').focus()");
    page.press("Escape");
    page.wait("!location.hash.includes('from=')");
    assert_eq!(page.problems, Vec::<String>::new());
}

#[test]
fn several_runs_smoothing_and_axes() {
    let Some(mut page) = Page::open(1300, 900) else { return };
    let served = Served::with(None, |root| {
        SyntheticRun::whole(&root.join("arpo"), plan(), 1).unwrap();
        SyntheticRun::whole(&root.join("grpo"), Plan { method: "GRPO", ..plan() }, 1).unwrap();
    });
    page.go(&served.url("/#/overview?runs=arpo,grpo&smooth=5&log=1&x=time"));
    page.wait("document.querySelectorAll('.plot .line').length > 20");
    let state = page.value(
        "[document.querySelector('input[type=range]').value, ...[...document.querySelectorAll('.controls input[type=checkbox]')].map((one) => one.checked)]",
    );
    assert_eq!(state, json!(["5", true, true]), "the address restores the view");
    assert!(
        number(&mut page, "document.querySelectorAll('.plot .raw').length") > 5.0,
        "smoothed curves keep their raw ones"
    );
    let names = page.value("[...document.querySelectorAll('.plot')].find((one) => one.textContent.includes('Entropy')).querySelector('.legend').textContent");
    assert!(names.as_str().unwrap().contains("arpo") && names.as_str().unwrap().contains("grpo"), "{names}");
    // one run less, by its box
    page.value("[...document.querySelectorAll('.run-list input')][1].click()");
    page.wait("location.hash.includes('runs=arpo&')");
    page.wait("document.querySelectorAll('.summary').length === 1");
    assert_eq!(page.problems, Vec::<String>::new());
}

#[test]
fn filters_filter_and_the_player_steps() {
    let Some(mut page) = Page::open(1300, 900) else { return };
    let injected = "<script>window.hit = 1</script><img src=x onerror='window.hit = 2'>";
    let served = Served::with(None, |root| {
        SyntheticRun::whole(&root.join("run"), Plan { injected, turns: 6, ..plan() }, 11).unwrap();
    });
    page.go(&served.url("/#/episodes?runs=run"));
    page.wait("document.querySelectorAll('.row').length > 5");
    let total = "Number(document.querySelector('.controls .hint').textContent.split(' ')[0])";
    assert!((number(&mut page, total) - 144.0).abs() < 0.5);
    page.value("(() => { const box = document.querySelector('select[aria-label=Score]'); box.value = 'solved'; box.dispatchEvent(new Event('change')); })()");
    page.wait(&format!("{total} < 144"));
    let solved = number(&mut page, total);
    let run = Run::open(&served.path("run")).unwrap();
    let expected = run.index().rows.iter().filter(|row| row.score > 0.5).count();
    assert!((solved - expected as f64).abs() < 0.5, "{solved} {expected}");
    page.wait(
        "[...document.querySelectorAll('.row [data-solved]')].every((one) => one.dataset.solved === 'true')",
    );
    // the shared link restores the filter
    let shared = page.value("location.href");
    page.go("about:blank");
    page.go(shared.as_str().unwrap());
    page.wait(&format!("document.querySelectorAll('.row').length && {total} === {solved}"));
    // scrolling to the end of the list loads it there
    page.value("document.querySelector('.list').scrollTop = 1e9");
    page.wait("[...document.querySelectorAll('.row')].some((one) => Number(one.dataset.index) > 40)");

    let long = run.index().rows.iter().find(|row| row.turns >= 4).unwrap();
    let file = &run.index().file_of(long).name;
    page.go("about:blank");
    page.go(&served.url(&format!("/#/player?runs=run&file={file}&id={}", long.id)));
    page.wait("document.querySelector('.shot-image')?.complete && document.querySelector('.shot-image').naturalWidth === 320");
    page.wait("document.querySelector('.turn').textContent.startsWith('1 /')");
    let shown = page.value("document.querySelector('.thought').textContent");
    assert!(shown.as_str().unwrap().contains(injected), "{shown}");
    let response = page.value("document.querySelector('.response').textContent");
    assert!(response.as_str().unwrap().contains(injected), "{response}");
    assert_eq!(page.value("window.hit ?? null"), json!(null), "a script in a response is text");
    assert!(number(&mut page, "document.querySelectorAll('.token').length") > 10.0);
    page.press("ArrowRight");
    page.press("ArrowRight");
    page.wait(
        "document.querySelector('.turn').textContent.startsWith('3 /') && location.hash.includes('turn=3')",
    );
    page.press("ArrowLeft");
    page.wait("document.querySelector('.turn').textContent.startsWith('2 /')");
    page.value("document.getElementById('content').focus()");
    page.press(" ");
    page.wait("document.querySelector('.turn').textContent.startsWith('4 /')");
    // beside another one of its group, at the first divergence
    page.value("(() => { const box = document.querySelector('select[aria-label=Beside]'); box.value = box.options[1].value; box.dispatchEvent(new Event('change')); })()");
    page.wait("document.querySelectorAll('.pane').length === 2");
    page.value("[...document.querySelectorAll('button')].find((one) => one.textContent === 'First divergence').click()");
    page.wait(
        "document.querySelector('.player-controls .hint').textContent.includes('differ first in turn')",
    );
    let link = page.value("location.href").as_str().unwrap().to_owned();
    assert!(link.contains("other="), "{link}");
    page.go("about:blank");
    page.go(&link);
    page.wait("document.querySelectorAll('.pane .shot-image').length === 2");
    assert_eq!(page.problems, Vec::<String>::new());
}

#[test]
fn desktops_tasks_and_groups() {
    let Some(mut page) = Page::open(1300, 900) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SyntheticRun::start(&folder.path().join("run"), plan(), 3).unwrap();
    for iteration in 0..6 {
        writer.iteration(iteration).unwrap();
    }
    let server = arpo_view::serve_in_background(&folder.path().join("run"), Some(0)).unwrap();
    let url = format!("http://{}/", server.address);
    page.go(&format!("{url}#/now"));
    page.wait("document.querySelectorAll('.desktop img').length === 8");
    page.wait(
        "[...document.querySelectorAll('.desktop img')].every((one) => one.complete && one.naturalWidth > 0)",
    );
    writer.failure(6, 2).unwrap();
    page.wait("document.body.textContent.includes('step took longer than 30 s')");
    page.go(&format!("{url}#/tasks?sort=difficulty"));
    page.wait("document.querySelectorAll('.matrix tbody th').length === 8");
    let means = page.value("[...document.querySelectorAll('.matrix tbody tr td:nth-child(3).number')].map((one) => Number(one.textContent))");
    let means: Vec<f64> = means.as_array().unwrap().iter().filter_map(serde_json::Value::as_f64).collect();
    assert!(means.len() == 8 && means.is_sorted(), "{means:?}");
    page.value("document.querySelector('.matrix a').click()");
    page.wait("location.hash.startsWith('#/task?') && document.querySelectorAll('.row.in-flow').length > 0");
    page.value("document.querySelector('.row.in-flow').click()");
    page.wait("document.querySelector('.player-head a[href*=group]')");
    page.value("document.querySelector('.player-head a[href*=group]').click()");
    page.wait(
        "document.querySelectorAll('.member').length === 4 && document.querySelectorAll('.frame').length > 3",
    );
    assert_eq!(page.problems, Vec::<String>::new());
}

/// Where the fixed parts of the overview are.
fn places(page: &mut Page) -> Vec<f64> {
    let places = page.value(
        "[...document.querySelectorAll('nav a, #run, #live, .plot')].flatMap((one) => { \
         const at = one.getBoundingClientRect(); return [at.x, at.y, at.width, at.height]; })",
    );
    places.as_array().unwrap().iter().filter_map(serde_json::Value::as_f64).collect()
}

#[test]
fn a_run_that_begins_appears_and_nothing_moves() {
    let Some(mut page) = Page::open(1300, 900) else { return };
    let served = Served::run();
    page.go(&served.url("/#/overview"));
    page.wait("document.querySelectorAll('.plot .line').length > 10");
    let before = places(&mut page);
    page.value("document.getElementById('run').focus()");
    SyntheticRun::start(&served.path("another-one-with-a-name-that-is-rather-long"), plan(), 3).unwrap();
    page.wait("document.getElementById('run').options.length === 2");
    page.wait("document.querySelectorAll('.run-list input').length === 2");
    let after = places(&mut page);
    assert_eq!(after.len(), before.len());
    for (after, before) in after.iter().zip(&before) {
        // letters of another run may change a line's height by a fraction of a pixel
        assert!((after - before).abs() < 1.0, "{after} {before}");
    }
    assert_eq!(page.value("document.activeElement.id"), "run", "whoever is choosing goes on choosing");
    assert_eq!(page.value("document.getElementById('run').value"), "run");
    // both over each other
    page.value("document.querySelectorAll('.run-list input')[1].focus()");
    page.value("document.activeElement.click()");
    page.wait("document.querySelectorAll('.summary').length === 2");
    page.wait("document.activeElement === document.querySelectorAll('.run-list input')[1]");
    assert_eq!(page.problems, Vec::<String>::new());
}

/// Nobody sees it: it asks for nothing, and catches up when it is seen again.
#[test]
fn a_hidden_page_asks_for_nothing() {
    let Some(mut page) = Page::open(1300, 900) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SyntheticRun::start(&folder.path().join("run"), plan(), 3).unwrap();
    writer.iteration(0).unwrap();
    let server = arpo_view::serve_in_background(&folder.path().join("run"), Some(0)).unwrap();
    page.go(&format!("http://{}/#/now", server.address));
    page.wait("document.querySelectorAll('.desktop img').length === 8");
    let hide = |page: &mut Page, hidden: bool| {
        page.value(&format!(
            "Object.defineProperty(document, 'hidden', {{ configurable: true, get: () => {hidden} }}); \
             document.dispatchEvent(new Event('visibilitychange'))"
        ));
    };
    let asked = |page: &mut Page| {
        page.value("0");
        std::mem::take(&mut page.requests)
    };
    hide(&mut page, true);
    std::thread::sleep(std::time::Duration::from_millis(500));
    asked(&mut page);
    writer.iteration(1).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(12));
    assert_eq!(asked(&mut page), Vec::<String>::new());
    hide(&mut page, false);
    page.wait("document.querySelector('.phase').textContent.includes('Iteration 2')");
    let requests = asked(&mut page);
    for wanted in ["/api/events", "/api/runs", "/status"] {
        assert!(requests.iter().any(|one| one.contains(wanted)), "{wanted}: {requests:?}");
    }
    assert_eq!(page.problems, Vec::<String>::new());
}

#[test]
fn episodes_of_evaluations_have_names_for_people() {
    let Some(mut page) = Page::open(1300, 900) else { return };
    let served = Served::with(None, |root| {
        SyntheticRun::whole(&root.join("run"), Plan { evaluated: 2, ..plan() }, 11).unwrap();
    });
    page.go(&served.url("/#/episodes?runs=run&origin=evaluation"));
    // two tasks of two sets, four attempts at each, before training and after iterations 5 and 10
    page.wait("document.querySelector('.controls .hint')?.textContent.startsWith('48 ')");
    page.value("document.querySelector('.row').click()");
    page.wait("document.querySelector('.pane-title')");
    let title = page.value("document.querySelector('.pane-title').textContent");
    let expected = "evaluation after iteration 10 (held out), pocket-settings-open-1, attempt 3";
    assert!(title.as_str().unwrap().starts_with(expected), "{title}");
    let beside = page.value("document.querySelector('select[aria-label=Beside]').textContent");
    assert!(beside.as_str().unwrap().contains("attempt 0: score"), "{beside}");
    // the way back leads to where the list was
    page.value("history.back()");
    page.wait("document.querySelectorAll('.row').length > 5");
    page.value("document.querySelector('.list').scrollTop = 20 * 56");
    page.wait("location.hash.includes('at=20')");
    page.value("document.querySelector('.row[data-index=\"22\"]').click()");
    page.wait("document.querySelector('.pane-title')");
    for (page_name, there) in [("player", ".stage img"), ("group", ".member img")] {
        page.value(&format!("location.hash = location.hash.replace('player', '{page_name}')"));
        page.wait(&format!("document.querySelector('{there}')"));
        let text = page.value("document.body.innerText");
        assert!(!text.as_str().unwrap().contains("10995"), "{text}");
    }
    page.value("history.go(-2)");
    page.wait("document.querySelector('.list')?.scrollTop === 20 * 56");
    assert_eq!(page.problems, Vec::<String>::new());
}

/// The numbers of a page come when its reader has already gone back.
#[test]
fn a_page_that_comes_late_does_not_replace_the_one_that_is_there() {
    let Some(mut page) = Page::open(1300, 900) else { return };
    let served = Served::with(None, |root| {
        SyntheticRun::whole(&root.join("run"), plan(), 11).unwrap();
    });
    page.go(&served.url("/#/episodes?runs=run"));
    page.wait("document.querySelectorAll('.row').length > 5");
    page.value(
        "window.late = 0; const now = fetch; window.fetch = async (...asked) => { \
             const answer = await now(...asked); \
             if (!String(asked[0]).includes('/episode?')) return answer; \
             await new Promise((done) => setTimeout(done, 700)); \
             late += 1; \
             return answer; \
         }; 0",
    );
    page.value("document.querySelector('.row').click()");
    page.wait("location.hash.startsWith('#/player')");
    page.value("history.back()");
    page.wait("location.hash.startsWith('#/episodes') && late === 1");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(page.value("document.querySelectorAll('.row').length > 5"), json!(true));
    assert_eq!(page.value("document.querySelector('.pane-title') === null"), json!(true));
    assert_eq!(page.problems, Vec::<String>::new());
}

/// A person types and chooses while the run goes on.
#[test]
fn news_do_not_take_the_keyboard_away() {
    let Some(mut page) = Page::open(1300, 900) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SyntheticRun::start(&folder.path().join("run"), plan(), 3).unwrap();
    (0..4).for_each(|iteration| writer.iteration(iteration).unwrap());
    let server = arpo_view::serve_in_background(&folder.path().join("run"), Some(0)).unwrap();
    page.go(&format!("http://{}/#/tasks", server.address));
    page.wait("document.querySelectorAll('.matrix tbody th').length === 8");
    let columns = "document.querySelectorAll('.matrix tbody tr:first-child .cell').length";
    for (selector, iteration) in
        [("input[type=search]", 4), ("select[aria-label=Order]", 5), (".matrix a", 6)]
    {
        page.value(&format!("document.querySelector({selector:?}).focus()"));
        let before = page.value(columns);
        writer.iteration(iteration).unwrap();
        page.wait(&format!("{columns} > {before}"));
        let kept = format!("document.activeElement === document.querySelector({selector:?})");
        assert_eq!(page.value(&kept), json!(true), "{selector}");
    }
    // a link that is followed with the keyboard leads into the new page
    page.value("document.activeElement.click()");
    page.wait("location.hash.startsWith('#/task?') && document.activeElement.id === 'content'");
    assert_eq!(page.problems, Vec::<String>::new());
}

#[test]
fn a_report_draws_itself_without_a_server() {
    let Some(mut page) = Page::open(1300, 900) else { return };
    let folder = tempfile::tempdir().unwrap();
    let injected = "<script>window.hit = 1</script>";
    SyntheticRun::whole(&folder.path().join("run"), Plan { injected, ..plan() }, 5).unwrap();
    let mut runs = vec![Run::open(&folder.path().join("run")).unwrap()];
    let html = arpo_view::report::page::html(&mut runs, "2026-11-17").unwrap();
    let path = folder.path().join("report.html");
    std::fs::write(&path, html).unwrap();
    page.go(&format!("file://{}", path.display()));
    page.wait("document.querySelectorAll('.plot .line').length > 10");
    page.wait("document.querySelectorAll('.trajectory figure').length > 1");
    page.wait("[...document.querySelectorAll('.trajectory img')].every((one) => one.complete && one.naturalWidth > 0)");
    page.wait("document.body.innerText.includes('<script>window.hit')");
    assert_eq!(page.value("window.hit ?? null"), json!(null));
    assert_eq!(page.problems, Vec::<String>::new());
}

/// Text of every view has a contrast of at least 4.5 to what is behind it, in both colour schemes, and no page is wider than a
/// narrow screen.
#[test]
fn every_view_is_readable_wide_and_narrow_dark_and_light() {
    let Some(mut page) = Page::open(1400, 900) else { return };
    let pictures = std::env::var_os("ARPO_VIEW_PICTURES").map(PathBuf::from);
    let folder = tempfile::tempdir().unwrap();
    let big = Plan {
        iterations: 60,
        tasks: 24,
        groups: 6,
        screen: (1280, 800),
        turns: 7,
        evaluated: 3,
        ..Plan::default()
    };
    let plain = Plan { method: "GRPO", final_success: 0.6, ..big.clone() };
    SyntheticRun::whole(&folder.path().join("grpo"), plain, 2).unwrap();
    let mut writer = SyntheticRun::start(&folder.path().join("arpo"), big, 1).unwrap();
    for iteration in 0..50 {
        writer.iteration(iteration).unwrap();
    }
    writer.failure(49, 2).unwrap();
    let run = Run::open(&folder.path().join("arpo")).unwrap();
    let row = run.index().rows.iter().rev().find(|row| row.turns >= 5).unwrap();
    let episode = format!("file={}&id={}", run.index().file_of(row).name, row.id);
    let task = &run.index().task_of(row).task;
    let viewer = arpo_view::viewer(&[folder.path().to_path_buf()], None).unwrap();
    let server = arpo_view::Background::start(viewer, ([127, 0, 0, 1], 0).into()).unwrap();
    let group = run
        .index()
        .rows
        .iter()
        .find(|other| other.file == row.file && other.task == row.task && other.id != row.id);
    let other = &group.unwrap().id;
    let views = [
        ("overview", "runs=arpo".to_owned()),
        ("overview", "runs=arpo,grpo&smooth=6".to_owned()),
        ("now", "runs=arpo".to_owned()),
        ("tasks", "runs=arpo&sort=gain".to_owned()),
        ("task", format!("runs=arpo&task={task}")),
        ("episodes", "runs=arpo".to_owned()),
        ("group", format!("runs=arpo&{episode}")),
        ("player", format!("runs=arpo&{episode}&turn=2")),
        ("player", format!("runs=arpo&{episode}&other={other}&shade=ratio")),
    ];
    let mut wrong = vec![];
    for (scheme, (width, height)) in
        [("light", (1400, 900)), ("dark", (1400, 900)), ("light", (420, 860)), ("dark", (420, 860))]
    {
        page.resize(width, height);
        page.colours(scheme);
        for (number, (view, query)) in views.iter().enumerate() {
            page.go("about:blank");
            page.go(&format!("http://{}/#/{view}?{query}", server.address));
            page.wait("document.getElementById('content').children.length > 1 && !document.querySelector('[role=alert]')");
            page.wait("[...document.images].every((one) => one.loading === 'lazy' || one.complete)");
            let low = page.value(LOW_CONTRAST);
            if low != json!([]) {
                wrong.push(format!("{view} {scheme} {width}: {low}"));
            }
            let wide = page.value("document.documentElement.scrollWidth");
            if wide.as_f64() > Some(f64::from(width) + 1.0) {
                wrong.push(format!("{view}: {wide} wide on {width}"));
            }
            if let Some(folder) = &pictures {
                std::thread::sleep(std::time::Duration::from_millis(300));
                let name = format!("{number}-{view}-{scheme}-{width}.png");
                std::fs::write(folder.join(name), page.screenshot()).unwrap();
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(page.problems, Vec::<String>::new());
}

/// Texts with too little contrast to the nearest opaque ground behind them.
const LOW_CONTRAST: &str = r"(() => {
  const channel = (value) => { const part = value / 255; return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  // rgb() counts to 255, color(srgb ...) to 1
  const parse = (text) => text.match(/[\d.]+/g).map((part, index) => Number(part) * (text.startsWith('color(') && index < 3 ? 255 : 1));
  const over = (top, below) => top.slice(0, 3).map((value, index) => value * (top[3] ?? 1) + below[index] * (1 - (top[3] ?? 1)));
  const ground = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if ((colour[3] ?? 1) > 0) layers.push(colour);
      if ((colour[3] ?? 1) === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || element.closest('svg, button:disabled, option, script, noscript')) continue;
    if (!element.checkVisibility()) continue;
    const below = ground(element);
    const [a, b] = [light(over(parse(getComputedStyle(element).color), below)), light(below)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push(`${element.tagName}.${element.className} ${contrast.toFixed(2)} ${walker.currentNode.textContent.slice(0, 30)}`);
  }
  return [...new Set(found)].slice(0, 12);
})()";
