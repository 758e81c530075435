//! A user with a certificate that another authority has issued for the same name: refused with the reason, and told by the broker.

use crate::support::Testbed;

#[test]
fn a_foreign_certificate_is_refused_with_the_reason_and_told() {
    let house = Testbed::new();
    let [own, foreign, state] = ["own", "foreign", "state"].map(|name| house.path(name).display().to_string());
    for dir in [&own, &foreign] {
        for line in ["init robot ", "issue broker base --dir ", "issue user ann --dir "] {
            assert_eq!(house.run(&format!("keys {line}{dir}")).code(), 0, "{line}");
        }
    }
    std::fs::copy(format!("{own}/realm.pem"), format!("{foreign}/realm.pem")).unwrap();
    let broker = house.start(&format!("broker --name base --keys {own} --listen 127.0.0.1:0 --state {state} --json"));
    let told = broker.json_line();
    let at = told["listening"].as_str().unwrap();
    let ask = |keys: &str| house.run(&format!("hosts --user ann --broker {at} --keys {keys}"));
    assert_eq!(ask(&own).code(), 0);

    let refused = ask(&foreign);
    let why = "refuses the certificate of thalweg://robot/user/ann: another authority has issued it";
    assert!(refused.code() == 3 && refused.errors.contains(why), "{} {}", refused.code(), refused.errors);
    let line = broker.error_line().unwrap();
    assert!(line.contains("broker base refused 127.0.0.1:"), "{line}");
    assert!(line.contains("another authority has issued its certificate"), "{line}");
}
