use super::*;
use qos::Class;
use qos::priority::{Mark, PrioritySettings};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// `/out` at node 1 and `/in` at node 2, the settings of each, and nodes that refuse a class.
#[derive(Default)]
struct Fake {
    kept: RefCell<BTreeMap<String, PrioritySettings>>,
    refuses: Vec<(NodeId, Class)>,
    scaled: RefCell<Vec<NodeId>>,
}

impl Nodes for Fake {
    fn holder_of(&self, port: &str) -> Option<(NodeId, Direction)> {
        match port {
            "/out" => Some((NodeId(1), Direction::Publisher)),
            "/in" => Some((NodeId(2), Direction::Subscriber)),
            _ => None,
        }
    }

    fn answer(&self, node: NodeId, request: &Request) -> Result<Reply> {
        let mut kept = self.kept.borrow_mut();
        let report = |asked: &PrioritySettings| EndReport { asked: asked.clone(), ..EndReport::default() };
        match request {
            Request::Get { port, .. } => Ok(Reply::Settings(kept.get(port).map(report).into_iter().collect())),
            Request::Set { port, changes, .. } => {
                let mut asked = kept.get(port).cloned().unwrap_or_default();
                changes.apply(&mut asked);
                if self.refuses.iter().any(|(at, class)| *at == node && asked.mark == Some(Mark::Class(*class))) {
                    return Err(Error::Refused("no".to_owned()));
                }
                kept.insert(port.clone(), asked.clone());
                Ok(Reply::Settings(vec![report(&asked)]))
            }
            Request::Scale { .. } => {
                self.scaled.borrow_mut().push(node);
                Ok(Reply::Done)
            }
            other => panic!("{other:?}"),
        }
    }
}

fn marks(nodes: &Fake) -> [Option<Mark>; 2] {
    ["/out", "/in"].map(|port| nodes.kept.borrow().get(port).and_then(|asked| asked.mark))
}

fn wish(words: &str) -> Wish {
    Wish::read(words.split(' ')).unwrap()
}

fn both(nodes: &Fake, words: &str) -> std::result::Result<Vec<EndReport>, Unset> {
    set(nodes, "/out", Some("/in"), Ends::Both, &wish(words))
}

#[test]
fn both_ends_are_set_or_none() {
    let class = |class| Some(Mark::Class(class));
    let mut nodes = Fake::default();
    assert_eq!(both(&nodes, "class=low").unwrap().len(), 2);
    nodes.refuses = vec![(NodeId(2), Class::High)];
    let refused = both(&nodes, "class=high").unwrap_err().to_string();
    assert_eq!((refused.as_str(), marks(&nodes)), ("at /in: no", [class(Class::Low), class(Class::Low)]));
    nodes.refuses.push((NodeId(1), Class::Low));
    let refused = both(&nodes, "class=high").unwrap_err().to_string();
    assert_eq!(refused, "at /in: no; /out could not be set back: no");
    assert_eq!(marks(&nodes), [class(Class::High), class(Class::Low)]);
}

#[test]
fn one_end_may_be_chosen_whose_other_port_is_not_there() {
    let nodes = Fake::default();
    let only = |subscriber, ends| set(&nodes, "/out", subscriber, ends, &wish("class=high"));
    assert_eq!(only(Some("/none"), Ends::Publisher).unwrap().len(), 1);
    assert!(matches!(only(Some("/none"), Ends::Both), Err(Unset::Unknown(port)) if port == "/none"));
    assert_eq!(only(None, Ends::Both).unwrap().len(), 1, "the process");
    let turned = set(&nodes, "/in", Some("/out"), Ends::Both, &wish("class=high")).unwrap_err();
    assert!(turned.to_string().starts_with("/in is a subscriber; say"), "{turned}");
}

#[test]
fn a_stream_is_scaled_at_its_subscriber() {
    let nodes = Fake::default();
    both(&nodes, "every=10").unwrap();
    both(&nodes, "every=10 class=high").unwrap();
    assert_eq!((&nodes.scaled.borrow()[..], marks(&nodes)[0].is_some()), (&[NodeId(2); 2][..], true));
    let process = set(&nodes, "/out", None, Ends::Both, &wish("every=10")).unwrap_err();
    assert!(matches!(&process, Unset::Failed(Error::Usage(why)) if why.contains("name both ports")), "{process}");
    assert!(Wish::read(["every=0"]).is_err() && Wish::read(["class=best"]).is_err());
    assert!(Wish::default().is_empty());
}
