use super::*;
use proptest::prelude::*;

fn read(text: &str, parameters: &[&str]) -> Result<Expression, ExpressionError> {
    let parameters = parameters.iter().map(|p| (*p).to_owned()).collect();
    Expression::parse(&Filter { expression: text.to_owned(), parameters })
}

/// x = 5, y = 2.5, name = "arm left", on = TRUE; any other field is not there.
fn holds(text: &str, parameters: &[&str]) -> bool {
    let expression = read(text, parameters).unwrap();
    let value = |field: &String| match field.as_str() {
        "x" => Some(Value::Integer(5)),
        "y" => Some(Value::Float(2.5)),
        "name" | "part.name" => Some(Value::Text("arm left")),
        "on" => Some(Value::Bool(true)),
        _ => None,
    };
    let values: Vec<_> = expression.fields().iter().map(value).collect();
    expression.holds(&values)
}

#[test]
fn comparisons_hold_as_written() {
    for (text, expected) in [
        ("x = 5", true),
        ("x <> 5", false),
        ("x != 4", true),
        ("5 <= x", true),
        ("x < 5.0", false),
        ("x > y", true),
        ("y >= 2.5e0 AND y <= 25e-1", true),
        ("name = 'arm left'", true),
        ("part.name LIKE 'arm%'", true),
        ("name LIKE '_rm%t'", true),
        ("name LIKE 'arm'", false),
        ("on = TRUE", true),
        ("x BETWEEN 5 AND 9", true),
        ("x NOT BETWEEN 5 AND 9", false),
        ("x between -1 and 4", false),
        ("NOT x = 5 OR y = 2.5", true),
        ("NOT (x = 5 OR y = 2.5)", false),
        ("x = 1 AND x = 2 OR x = 5", true),
        ("x = 1 AND (x = 2 OR x = 5)", false),
        ("x = '5'", false),
        ("missing = 1", false),
        ("NOT missing = 1", true),
    ] {
        assert_eq!(holds(text, &[]), expected, "{text}");
    }
}

#[test]
fn parameters_stand_for_their_values() {
    assert!(holds("x > %0 AND name LIKE %1", &["4", "'arm%'"]));
    assert!(holds("name = %0", &["arm left"]) && !holds("x > %1", &["4", "5"]) && holds("on = %0", &["true"]));
    assert!(read("x = %1", &["4"]).unwrap_err().to_string().contains("1 parameters given"));
}

#[test]
fn errors_name_the_place_and_the_allowed_values() {
    for (text, at, says) in [
        ("", 0, "expected a field"),
        ("x", 1, "BETWEEN"),
        ("x = ", 4, "expected a field"),
        ("x = 'a", 4, "expected '"),
        ("x = 5 y", 6, "AND, OR or the end"),
        ("(x = 5", 6, "expected )"),
        ("x = 5x", 4, "no number"),
        ("x # 5", 2, "no meaning"),
        ("AND = 5", 0, "expected a field"),
        ("x BETWEEN 1 OR 2", 12, "AND between"),
        ("x = %", 4, "number after %"),
    ] {
        let wrong = read(text, &[]).unwrap_err();
        assert!(wrong.at == at && wrong.problem.contains(says), "{text}: {wrong}");
    }
    assert!(read(&format!("{}x = 1", "NOT ".repeat(100_000)), &[]).unwrap_err().problem.contains("at most 32"));
    assert!(read(&"(".repeat(100_000), &[]).is_err());
    assert!(read(&"x = 1 OR ".repeat(200), &[]).unwrap_err().problem.contains("at most 128 conditions"));
    let fields: Vec<String> = (0..65).map(|n| format!("f{n} = 1")).collect();
    assert!(read(&fields.join(" AND "), &[]).unwrap_err().problem.contains("64 different fields"));
}

/// A filter that would run for long on the publishing thread does not hold; one of an ordinary size does.
#[test]
fn a_filter_takes_a_bounded_number_of_steps() {
    let text = "a".repeat(100_000);
    let holds = |text: &str, filter: &str, parameter: &str| {
        read(filter, &[parameter]).unwrap().holds(&[Some(Value::Text(text))])
    };
    let slow = format!("%{}b", "a%".repeat(100));
    let begun = std::time::Instant::now();
    for filter in ["name LIKE %0", "NOT name LIKE %0"] {
        assert!(!holds(&text, filter, &slow) && !holds(&text, filter, "%b%"));
    }
    let other = format!("{}b", &text[1..]);
    assert!(!holds(&text, &["name = %0"; 128].join(" OR "), &other));
    assert!(begun.elapsed().as_millis() < 500, "a generous limit: without a budget it is minutes");
    assert!(
        holds(&text, "name LIKE %0", "aaa%")
            && holds(&text[..1000], "name LIKE %0", "%aa%a")
            && holds(&text, "name = %0", &text)
    );
}

proptest! {
    #[test]
    fn any_text_is_answered(text in ".{0,80}", words in "([xy()=<>%' 0-9.]|AND|OR|NOT|BETWEEN|LIKE){0,20}") {
        let _ = (read(&text, &["1"]), read(&words, &["1"]));
    }
    #[test]
    fn numbers_compare_as_numbers_do(a in -1000_i32..1000, b in -1000_i32..1000) {
        for (sign, expected) in [("=", a == b), ("<>", a != b), ("<", a < b), ("<=", a <= b), (">", a > b), (">=", a >= b)] {
            let expression = read(&format!("a {sign} {b}.0"), &[]).unwrap();
            prop_assert_eq!(expression.holds(&[Some(Value::Integer(a.into()))]), expected);
        }
    }
}
