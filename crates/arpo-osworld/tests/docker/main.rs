//! The provider against a real engine, with an image made of one static busybox.
//!
//! Needs a Docker engine and Debian's `busybox-static`; without them each test says so and passes.

mod bench;

use arpo_osworld::guest::http::RetryPolicy;
use arpo_osworld::provider::{
    Addresses, CleanScope, Container, Limits, Machine, Network, Options, Owner, Provider, ProviderError,
    Spares, TOKEN_VARIABLE, Vm, remove_leftovers,
};
use bench::{Bench, SERVES, provider, soon};
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn answers(addresses: &Addresses, limit: Duration) -> bool {
    let config = ureq::Agent::config_builder().timeout_global(Some(limit)).proxy(None);
    config.build().new_agent().get(format!("{}/screenshot", addresses.server_url())).call().is_ok()
}

fn screenshot(addresses: &Addresses) -> Vec<u8> {
    let url = format!("{}/screenshot", addresses.server_url());
    let mut answer = ureq::get(&url).header("Authorization", "Bearer secret").call().expect("an answer");
    answer.body_mut().read_to_vec().expect("a screenshot")
}

fn fails<T>(result: Result<T, ProviderError>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn a_desktop_starts_pauses_and_goes() {
    let Some(bench) = Bench::new("life", SERVES) else { return };
    let provider = bench::provider(bench.container());
    let begun = Instant::now();
    let desktop = provider.start(soon()).expect("a desktop");
    println!("started in {:?}", begun.elapsed());
    let name = desktop.name().to_owned();
    assert!(desktop.alive());
    assert!(answers(desktop.addresses(), Duration::from_secs(5)));

    let begun = Instant::now();
    desktop.pause().expect("a pause");
    println!("paused in {:?}", begun.elapsed());
    assert!(desktop.is_paused() && desktop.alive());
    assert!(!answers(desktop.addresses(), Duration::from_millis(500)), "a paused desktop answers nothing");
    desktop.pause().expect("twice is once");
    let begun = Instant::now();
    desktop.unpause().expect("an end of the pause");
    println!("unpaused in {:?}", begun.elapsed());
    assert!(answers(desktop.addresses(), Duration::from_secs(5)));

    let begun = Instant::now();
    desktop.stop().expect("its end");
    println!("removed in {:?}", begun.elapsed());
    assert!(!bench.exists(&name));
    let network = name.rsplit_once('-').expect("a number at the end").0.to_owned();
    assert!(bench.network_exists(&network));
    drop(provider);
    assert!(!bench.network_exists(&network), "the network goes with its provider");
}

#[test]
fn a_desktop_that_is_killed_is_noticed() {
    let Some(bench) = Bench::new("kill", &format!("echo hello; {SERVES}")) else { return };
    let provider = bench::provider(bench.container());
    let desktop = provider.start(soon()).expect("a desktop");
    bench.kill(desktop.name());
    assert!(!desktop.alive());
    let text = fails(desktop.check());
    assert!(text.contains(desktop.name()) && text.contains("exit code 137"), "{text}");
    assert!(text.ends_with("the end of its log: hello"), "{text}");
    let text = fails(desktop.pause());
    assert!(text.contains("is gone"), "the reason, not the engine's words: {text}");
    bench.remove(desktop.name());
    assert!(fails(desktop.check()).contains("somebody removed its container"));
}

#[test]
fn nobody_waits_for_a_desktop_that_was_killed_or_paused() {
    let Some(bench) = Bench::new("silence", SERVES) else { return };
    let provider = bench::provider(bench.container());
    let (killed, paused) = (provider.start(soon()).unwrap(), provider.start(soon()).unwrap());
    let guest = killed.guest(RetryPolicy::default(), None);
    bench.kill(killed.name());
    let begun = Instant::now();
    let text = guest.screenshot().unwrap_err().to_string();
    println!("a killed desktop was noticed after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(text.contains("exit code 137"), "{text}");

    let mut guest = paused.guest(RetryPolicy::default(), None);
    bench.pause(paused.name());
    let begun = Instant::now();
    guest.set_deadline(begun + Duration::from_secs(2));
    let text = guest.screenshot().unwrap_err().to_string();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(text.contains("is paused, and not by this program"), "{text}");
}

#[test]
fn an_isolated_desktop_sets_its_firewall_before_anything_else() {
    let isolation =
        "/bin/busybox id -u > /www/by\n/bin/busybox grep CapEff /proc/self/status >> /www/by\nexec /start";
    let Some(bench) = Bench::with_isolation("wall", SERVES, Some(isolation)) else { return };
    let isolated = |bench: &Bench| Container { network: Network::Isolated, ..bench.container() };
    let desktop = provider(isolated(&bench)).start(soon()).expect("a desktop");
    let text = bench.shell(desktop.name(), "/bin/busybox cat /www/by");
    let capabilities = text.trim().strip_prefix("0\nCapEff:").expect("set by root").trim();
    let net_admin_and_raw = 0b11_u64 << 12;
    let held = u64::from_str_radix(capabilities, 16).unwrap();
    assert_eq!(held & net_admin_and_raw, net_admin_and_raw, "{text}");
    drop((desktop, bench));

    let Some(bench) = Bench::with_isolation("nowall", SERVES, Some("echo no tables; exit 3")) else { return };
    let text = fails(provider(isolated(&bench)).start(soon()));
    assert!(text.contains("exit code 3") && text.ends_with("no tables"), "{text}");
    drop(bench);

    let Some(bench) = Bench::new("oldwall", SERVES) else { return };
    let text = fails(provider(isolated(&bench)).start(soon()));
    assert!(text.contains("has no firewall") && text.contains("./x image"), "{text}");
    assert_eq!(bench.containers("ancestor", &bench.image), Vec::<String>::new());
}

#[test]
fn every_server_of_ours_has_a_token() {
    let Some(bench) = Bench::new("token", SERVES) else { return };
    let token = |container: Container| {
        let desktop = provider(container).start(soon()).expect("a desktop");
        bench.shell(desktop.name(), &format!("echo ${TOKEN_VARIABLE}")).trim().to_owned()
    };
    let (one, other) = (token(bench.container()), token(bench.container()));
    assert!(one.len() == 32 && one != other, "{one} and {other}");
    let environment = vec![format!("{TOKEN_VARIABLE}=secret")];
    assert_eq!(token(Container { environment, ..bench.container() }), "secret");
}

#[test]
fn a_desktop_that_does_not_come_up_says_why_and_is_removed() {
    let Some(bench) = Bench::new("ends", "echo no display; exit 3") else { return };
    let provider = bench::provider(bench.container());
    let text = fails(provider.start(soon()));
    assert!(text.contains("is gone: exit code 3") && text.ends_with("no display"), "{text}");
    assert!(!text.contains('\n'));
    assert_eq!(bench.containers("ancestor", &bench.image), Vec::<String>::new());
    drop((provider, bench));

    let Some(bench) = Bench::new("silent", "echo waiting; exec /bin/busybox sleep 1000") else { return };
    let provider = bench::provider(Container { ready_within: Duration::from_secs(2), ..bench.container() });
    let begun = Instant::now();
    let text = fails(provider.start(soon()));
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(text.contains("did not answer GET") && text.contains("within 2 s"), "{text}");
    assert!(text.ends_with("the end of its log: waiting"), "{text}");
    assert_eq!(bench.containers("ancestor", &bench.image), Vec::<String>::new());
}

#[test]
fn a_desktop_is_handed_over_when_its_screen_stands_still() {
    let drawing =
        "(for i in 1 2 3 4 5 6 7 8 9; do echo $i > /www/screenshot; /bin/busybox sleep 0.2; done) &";
    let Some(bench) = Bench::new("still", &format!("{drawing}\n{SERVES}")) else { return };
    let desktop = provider(bench.container()).start(soon()).expect("a desktop");
    assert_eq!(screenshot(desktop.addresses()), b"9\n");
}

#[test]
fn a_missing_image_is_named_with_its_remedy() {
    let Some(_bench) = Bench::new("image", SERVES) else { return };
    let named = |image: &str| {
        let container = Container { image: image.into(), ..Container::default() };
        fails(Provider::new(Options { run: "test".into(), machine: Machine::Container(container) }))
    };
    assert_eq!(
        named("arpo-desktop:no-such-tag"),
        "no image arpo-desktop:no-such-tag: build it with `./x image`"
    );
    assert_eq!(named("no/such:image"), "no image no/such:image: get it with `docker pull no/such:image`");
}

#[test]
fn eight_at_once_have_addresses_of_their_own() {
    let Some(bench) = Bench::new("many", SERVES) else { return };
    for network in [Network::Internal, Network::Bridge] {
        let provider = bench::provider(Container { network, ..bench.container() });
        let begun = Instant::now();
        let desktops: Vec<_> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| provider.start(soon()))).collect();
            starts.into_iter().map(|start| start.join().unwrap().expect("a desktop")).collect()
        });
        println!("8 on {network:?} started in {:?}", begun.elapsed());
        let addresses: HashSet<_> = desktops.iter().map(|desktop| desktop.addresses().server_url()).collect();
        assert_eq!(addresses.len(), 8);
        assert!(desktops.iter().all(|desktop| answers(desktop.addresses(), Duration::from_secs(5))));
        let begun = Instant::now();
        drop(desktops);
        println!("8 removed in {:?}", begun.elapsed());
        assert_eq!(bench.containers("ancestor", &bench.image), Vec::<String>::new());
    }
}

#[test]
fn an_internal_desktop_sees_neither_the_others_nor_a_way_out() {
    let Some(bench) = Bench::new("alone", SERVES) else { return };
    let provider = bench::provider(bench.container());
    let (one, other) = (provider.start(soon()).unwrap(), provider.start(soon()).unwrap());
    let reaches = |host: &str, port: u16| {
        let ask = format!(
            "printf 'GET /screenshot HTTP/1.0\\r\\n\\r\\n' | /bin/busybox timeout 3 /bin/busybox nc {host} {port}"
        );
        bench.shell(one.name(), &ask).contains("200")
    };
    assert!(reaches("127.0.0.1", 5000), "the question itself works");
    assert!(!reaches(&other.addresses().host, 5000), "desktops do not see each other");
    let text =
        bench.shell(one.name(), "/bin/busybox timeout 5 /bin/busybox nc -w 3 1.1.1.1 53 </dev/null; echo $?");
    assert_ne!(text.trim(), "0", "no way out: {text}");
}

#[test]
fn limits_hold() {
    let Some(bench) = Bench::new("limits", SERVES) else { return };
    let limits = Limits { memory_bytes: Some(64 << 20), processes: Some(20), ..Limits::default() };
    let provider = bench::provider(Container { limits, ..bench.container() });
    let desktop = provider.start(soon()).expect("a desktop");
    // Twenty processes are allowed: of thirty some cannot be made.
    let fork = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do /bin/busybox sleep 2 & done";
    let text = bench.shell(desktop.name(), fork);
    assert!(text.contains("fork"), "{text}");
    assert!(desktop.alive());
    // More memory than there is: the process dies, the desktop lives.
    let text = bench.shell(desktop.name(), "/bin/busybox tail -c 200m /dev/zero; echo $?");
    assert!(text.contains("137"), "{text}");
    assert!(answers(desktop.addresses(), Duration::from_secs(5)));
}

#[test]
fn a_spare_is_taken_at_once_and_the_next_one_comes() {
    let Some(bench) = Bench::new("spares", SERVES) else { return };
    let spares = Spares::new(provider(bench.container()), 2);
    assert!(spares.wait_until_full(soon()));
    let mut desktop = spares.take(soon()).expect("a spare");
    let mut names = HashSet::from([desktop.name().to_owned()]);
    for _ in 0..3 {
        bench.shell(desktop.name(), "echo left behind > /www/trace");
        assert!(spares.wait_until_full(soon()));
        let begun = Instant::now();
        desktop = spares.renew(desktop, soon()).expect("a fresh desktop");
        let took = begun.elapsed();
        println!("warm reset in {took:?}");
        assert!(took < Duration::from_secs(2), "{took:?}");
        assert!(names.insert(desktop.name().to_owned()), "another container");
        assert!(!bench.shell(desktop.name(), "ls /www").contains("trace"));
    }
    // A spare that died meanwhile is not handed out.
    assert!(spares.wait_until_full(soon()));
    for name in bench.containers("ancestor", &bench.image) {
        let name = name.trim_start_matches('/');
        if name != desktop.name() {
            bench.kill(name);
        }
    }
    let fresh = spares.take(soon()).expect("a desktop");
    assert!(fresh.alive() && answers(fresh.addresses(), Duration::from_secs(5)));
    drop((desktop, fresh));
    let begun = Instant::now();
    drop(spares);
    println!("spares closed in {:?}", begun.elapsed());
    assert_eq!(bench.containers("ancestor", &bench.image), Vec::<String>::new());
}

#[test]
fn more_takers_than_spares_all_get_one() {
    let Some(bench) = Bench::new("takers", SERVES) else { return };
    let spares = Spares::new(provider(bench.container()), 2);
    let names: HashSet<String> = std::thread::scope(|scope| {
        let take = || spares.take(soon()).map(|desktop| desktop.name().to_owned());
        let takers: Vec<_> = (0..5).map(|_| scope.spawn(take)).collect();
        takers.into_iter().map(|taker| taker.join().unwrap().expect("a desktop")).collect()
    });
    assert_eq!(names.len(), 5);
    drop(spares);
    assert_eq!(bench.containers("ancestor", &bench.image), Vec::<String>::new());
}

#[test]
fn a_snapshot_keeps_the_files_and_goes_with_its_holder() {
    let Some(bench) = Bench::new("snapshot", SERVES) else { return };
    let provider = bench::provider(bench.container());
    let prepared = provider.start(soon()).expect("a desktop");
    bench.shell(prepared.name(), "echo prepared > /www/trace");
    let begun = Instant::now();
    let snapshot = Arc::new(provider.snapshot(&prepared, "task-1", soon()).expect("a snapshot"));
    println!("snapshot in {:?}", begun.elapsed());
    drop(prepared);
    let image = snapshot.image().to_owned();
    assert!(bench.image_exists(&image));
    let desktop = provider.start_from(&snapshot, soon()).expect("a desktop of it");
    assert_eq!(bench.shell(desktop.name(), "/bin/busybox cat /www/trace").trim(), "prepared");
    let spares = Spares::from_snapshot(provider.clone(), Arc::clone(&snapshot), 1);
    let spare = spares.take(soon()).expect("a spare of it");
    assert_eq!(bench.shell(spare.name(), "/bin/busybox cat /www/trace").trim(), "prepared");
    let text = fails(provider.snapshot(&spare, "no slash/", soon()));
    assert!(text.starts_with("a snapshot cannot be called"), "{text}");
    drop((desktop, spare, spares, snapshot));
    assert!(!bench.image_exists(&image));
}

#[test]
fn leftovers_of_the_dead_go_and_those_of_the_living_stay() {
    let Some(bench) = Bench::new("leftovers", SERVES) else { return };
    let provider = bench::provider(bench.container());
    let here = Owner::this_process();
    let mut child = Command::new("true").spawn().unwrap();
    let dead = Owner { pid: child.id(), started_ticks: 1, ..here.clone() };
    child.wait().unwrap();
    let elsewhere = Owner { machine: "another".into(), boot: "another".into(), ..dead.clone() };
    let label = |owner: &Owner| HashMap::from([("arpo.owner".to_owned(), owner.to_string())]);
    let id = std::process::id();
    let names = ["dead", "living", "elsewhere", "unlabelled"].map(|kind| format!("arpo-test-{kind}-{id}"));
    let labels = [label(&dead), label(&here), label(&elsewhere), HashMap::new()];
    for (name, labels) in names.iter().zip(labels) {
        bench.leave(name, labels);
    }
    provider.remove_leftovers().expect("a clean-up");
    let left = names.clone().map(|name| bench.exists(&name));
    let removed = remove_leftovers(CleanScope::UnseenProcesses).expect("another clean-up");
    assert!(removed.containers.contains(&names[2]), "{removed:?}");
    assert!(bench.exists(&names[1]) && bench.exists(&names[3]) && !bench.exists(&names[2]));
    for name in &names {
        bench.remove(name);
    }
    assert_eq!(left, [false, true, true, true]);
}

/// A child that starts a desktop and never ends by itself; only the test below runs it.
#[test]
#[ignore = "the child of the next test"]
fn child_that_holds_a_desktop() {
    let Ok(image) = std::env::var("ARPO_TEST_IMAGE") else { return };
    let container = Container { image, network: Network::Internal, ..Container::default() };
    let options = Options { run: "test".into(), machine: Machine::Container(container) };
    let provider = Provider::new(options).expect("a provider");
    let desktop = provider.start(soon()).expect("a desktop");
    let snapshot = provider.snapshot(&desktop, "left", soon()).expect("a snapshot");
    println!("\ndesktop {}\nimage {}", desktop.name(), snapshot.image());
    std::thread::sleep(Duration::from_mins(2));
}

#[test]
fn what_a_killed_process_leaves_is_removed_by_the_next_start() {
    let Some(bench) = Bench::new("crash", SERVES) else { return };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_holds_a_desktop", "--ignored", "--nocapture"])
        .env("ARPO_TEST_IMAGE", &bench.image)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut said = |what: &str| lines.find_map(|line| line.strip_prefix(what).map(str::to_owned));
    let name = said("desktop ").expect("a desktop");
    let image = said("image ").expect("a snapshot");
    let network = name.rsplit_once('-').unwrap().0.to_owned();
    // A living process's desktop stays, whoever starts.
    drop(provider(bench.container()));
    assert!(bench.exists(&name) && bench.network_exists(&network) && bench.image_exists(&image));
    child.kill().unwrap();
    child.wait().unwrap();
    drop(provider(bench.container()));
    assert!(!bench.exists(&name) && !bench.network_exists(&network) && !bench.image_exists(&image));
}

#[test]
fn a_panic_removes_its_desktop() {
    let Some(bench) = Bench::new("panic", SERVES) else { return };
    let provider = bench::provider(bench.container());
    let panicked = std::thread::spawn(move || {
        let _desktop = provider.start(soon()).expect("a desktop");
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert_eq!(bench.containers("ancestor", &bench.image), Vec::<String>::new());
}

/// The hypervisor's part played by the same image: what it is given is what OSWorld's would be given.
#[test]
fn a_virtual_machine_gets_its_disk_and_ports() {
    let Some(bench) = Bench::new("vm", SERVES) else { return };
    let disk = std::env::temp_dir().join(format!("arpo-test-{}:1.qcow2", std::process::id()));
    let machine = |disk: &Path| Machine::Vm(Vm { image: bench.image.clone(), ..Vm::new(disk.to_owned()) });
    let text = fails(Provider::new(Options { run: "test".into(), machine: machine(&disk) }));
    assert!(text.starts_with("no disk image at "), "{text}");
    std::fs::write(&disk, "sectors").unwrap();
    let provider =
        Provider::new(Options { run: "test".into(), machine: machine(&disk) }).expect("a provider");
    let started = provider.start(soon());
    std::fs::remove_file(&disk).unwrap();
    let desktop = started.expect("a machine");
    assert_eq!(desktop.addresses().host, "127.0.0.1");
    let see = |command: &str| bench.shell(desktop.name(), command).trim().to_owned();
    assert_eq!(see("/bin/busybox cat /System.qcow2"), "sectors");
    assert!(see("echo changed > /System.qcow2 || echo refused").contains("refused"), "the disk is only read");
    assert_eq!(see("echo $DISK_SIZE $RAM_SIZE $CPU_CORES"), "32G 4G 4");
    let kvm = Path::new("/dev/kvm").exists();
    assert_eq!(see("echo $KVM"), if kvm { "" } else { "N" });
    assert_eq!(see("[ -c /dev/kvm ] && echo yes || echo no"), if kvm { "yes" } else { "no" });
    let text = fails(provider.snapshot(&desktop, "no", soon()));
    assert!(text.starts_with("a virtual machine has no snapshots"), "{text}");
}

/// The real image, if it has been built; `ARPO_TEST_DESKTOP_IMAGE` names another.
#[test]
fn the_real_desktop_is_reset_within_two_seconds() {
    let Some(bench) = Bench::new("real", SERVES) else { return };
    let image = std::env::var("ARPO_TEST_DESKTOP_IMAGE").unwrap_or(Container::default().image);
    if !bench.image_exists(&image) {
        println!("skipped: no image {image}");
        return;
    }
    let begun = Instant::now();
    let environment = vec![format!("{TOKEN_VARIABLE}=secret")];
    let spares = Spares::new(provider(Container { image, environment, ..Container::default() }), 1);
    let mut desktop = spares.take(soon()).expect("a desktop");
    println!("cold start in {:?}", begun.elapsed());
    assert!(!answers(desktop.addresses(), Duration::from_secs(5)), "nobody without the token");
    for _ in 0..3 {
        let begun = Instant::now();
        assert!(spares.wait_until_full(soon()));
        println!("a spare was ready after another {:?}", begun.elapsed());
        let begun = Instant::now();
        desktop = spares.renew(desktop, soon()).expect("a fresh desktop");
        let took = begun.elapsed();
        println!("warm reset in {took:?}");
        assert!(took < Duration::from_secs(2), "{took:?}");
        // Fully drawn; only its clock may have moved on.
        let first = screenshot(desktop.addresses()).len();
        std::thread::sleep(Duration::from_secs(1));
        let later = screenshot(desktop.addresses()).len();
        assert!(first.abs_diff(later) < later / 10, "{first} bytes, then {later}");
        let begun = Instant::now();
        desktop.pause().expect("a pause");
        desktop.unpause().expect("its end");
        println!("pause and unpause in {:?}", begun.elapsed());
    }
}

#[test]
fn a_running_guest_is_lent_to_one_user_at_a_time() {
    let Some(bench) = Bench::new("fixed", SERVES) else { return };
    let owner = provider(bench.container());
    let running = owner.start(soon()).expect("a desktop");
    let guest = Addresses::parse(&running.addresses().server_url()).expect("its address");
    let options = Options { run: "test".into(), machine: Machine::Fixed(vec![guest]) };
    let provider = Provider::new(options).expect("a provider");
    assert!(!provider.starts_fresh());
    let spares = Spares::new(provider.clone(), 3);
    let desktop = spares.take(soon()).expect("the guest");
    desktop.pause().expect("nothing");
    assert!(answers(desktop.addresses(), Duration::from_secs(5)), "a running guest is never paused");
    assert!(fails(provider.start(soon())).starts_with("all 1 running guests are in use"));
    let desktop = spares.renew(desktop, soon()).expect("the same guest");
    desktop.stop().expect("nothing");
    assert!(running.alive());
}
