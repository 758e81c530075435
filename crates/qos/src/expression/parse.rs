//! From text to a condition, by recursive descent with bounded depth.

use super::{Condition, Constant, Expression, ExpressionError, Filter, Operand, Relation};

/// Conditions within conditions, conditions in all, and different fields, at most.
const DEEPEST: usize = 32;
const MOST_CONDITIONS: usize = 128;
const MOST_FIELDS: usize = 64;

/// A word of the language.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A field's path or a keyword.
    Word(String),
    Constant(Constant),
    Parameter(usize),
    Relation(Relation),
    Open,
    Close,
}

struct Parser<'a> {
    tokens: Vec<(usize, Token)>,
    at: usize,
    end: usize,
    filter: &'a Filter,
    fields: Vec<String>,
    depth: usize,
    conditions: usize,
}

/// Reads all of a filter.
pub(super) fn parse(filter: &Filter) -> Result<Expression, ExpressionError> {
    let tokens = tokens(&filter.expression)?;
    let end = filter.expression.len();
    let mut parser = Parser { tokens, at: 0, end, filter, fields: Vec::new(), depth: 0, conditions: 0 };
    let condition = parser.or()?;
    match parser.at == parser.tokens.len() {
        true => Ok(Expression { fields: parser.fields, condition }),
        false => Err(parser.error("expected AND, OR or the end")),
    }
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn error(&self, expected: &str) -> ExpressionError {
        let (at, found) = match self.tokens.get(self.at) {
            Some((at, token)) => (*at, format!("{token:?}")),
            None => (self.end, "the end".to_owned()),
        };
        ExpressionError { at, problem: format!("{expected}, found {}", found.chars().take(64).collect::<String>()) }
    }

    fn takes(&mut self, keyword: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(word)) if word.eq_ignore_ascii_case(keyword));
        self.at += usize::from(found);
        found
    }

    fn or(&mut self) -> Result<Condition, ExpressionError> {
        let mut condition = self.and()?;
        while self.takes("OR") {
            condition = Condition::Or(Box::new(condition), Box::new(self.and()?));
        }
        Ok(condition)
    }

    fn and(&mut self) -> Result<Condition, ExpressionError> {
        let mut condition = self.not()?;
        while self.takes("AND") {
            condition = Condition::And(Box::new(condition), Box::new(self.not()?));
        }
        Ok(condition)
    }

    fn not(&mut self) -> Result<Condition, ExpressionError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.error("expected at most 32 conditions within each other"));
        }
        let condition = if self.takes("NOT") {
            Condition::Not(Box::new(self.not()?))
        } else if self.peek() == Some(&Token::Open) {
            self.at += 1;
            let inner = self.or()?;
            if self.peek() != Some(&Token::Close) {
                return Err(self.error("expected )"));
            }
            self.at += 1;
            inner
        } else {
            self.predicate()?
        };
        self.depth -= 1;
        Ok(condition)
    }

    fn predicate(&mut self) -> Result<Condition, ExpressionError> {
        self.conditions += 1;
        if self.conditions > MOST_CONDITIONS {
            return Err(self.error("expected at most 128 conditions in all"));
        }
        let first = self.operand()?;
        let not = self.takes("NOT");
        if self.takes("BETWEEN") {
            let low = self.operand()?;
            if !self.takes("AND") {
                return Err(self.error("expected AND between the two ends"));
            }
            let between = Condition::Between(first, low, self.operand()?);
            return Ok(if not { Condition::Not(Box::new(between)) } else { between });
        }
        let relation = match self.peek() {
            Some(Token::Relation(relation)) => *relation,
            Some(Token::Word(word)) if word.eq_ignore_ascii_case("LIKE") => Relation::Like,
            _ => return Err(self.error("expected = <> < <= > >= LIKE or BETWEEN")),
        };
        self.at += 1;
        let compared = Condition::Compare(first, relation, self.operand()?);
        Ok(if not { Condition::Not(Box::new(compared)) } else { compared })
    }

    fn operand(&mut self) -> Result<Operand, ExpressionError> {
        const EXPECTED: &str = "expected a field, a number, 'text', TRUE, FALSE or a parameter such as %0";
        let operand = match self.peek() {
            Some(Token::Constant(constant)) => Operand::Constant(constant.clone()),
            Some(Token::Word(word)) if is_keyword(word) => return Err(self.error(EXPECTED)),
            Some(Token::Word(word)) => match word.to_ascii_lowercase().as_str() {
                "true" => Operand::Constant(Constant::Bool(true)),
                "false" => Operand::Constant(Constant::Bool(false)),
                _ => Operand::Field(self.field(word.clone())?),
            },
            Some(Token::Parameter(number)) => match self.filter.parameters.get(*number) {
                Some(text) => Operand::Constant(parameter(text)),
                None => {
                    let given = self.filter.parameters.len();
                    return Err(self.error(&format!("expected one of the {given} parameters given, %0 the first")));
                }
            },
            _ => return Err(self.error(EXPECTED)),
        };
        self.at += 1;
        Ok(operand)
    }

    fn field(&mut self, path: String) -> Result<usize, ExpressionError> {
        if let Some(at) = self.fields.iter().position(|field| *field == path) {
            return Ok(at);
        }
        if self.fields.len() == MOST_FIELDS {
            return Err(self.error("expected at most 64 different fields"));
        }
        self.fields.push(path);
        Ok(self.fields.len() - 1)
    }
}

fn is_keyword(word: &str) -> bool {
    ["AND", "OR", "NOT", "LIKE", "BETWEEN"].iter().any(|keyword| word.eq_ignore_ascii_case(keyword))
}

/// A parameter is a number, a truth value or text in quotes; any other text is itself.
fn parameter(text: &str) -> Constant {
    let bare = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    match text.to_ascii_lowercase().as_str() {
        "true" => Constant::Bool(true),
        "false" => Constant::Bool(false),
        _ => number(text).unwrap_or_else(|| Constant::Text(bare.unwrap_or(text).to_owned())),
    }
}

fn number(text: &str) -> Option<Constant> {
    let numeric = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    let integer = || text.parse().ok().map(Constant::Integer);
    let float = || text.parse().ok().filter(|value: &f64| value.is_finite()).map(Constant::Float);
    numeric.then(|| integer().or_else(float)).flatten()
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ExpressionError> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = text.get(at..).and_then(|rest| rest.chars().next()) {
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (token, length) = token(&text[at..], first).map_err(|problem| ExpressionError { at, problem })?;
        found.push((at, token));
        at += length;
    }
    Ok(found)
}

const RELATIONS: [(&str, Relation); 7] = [
    ("<>", Relation::Unequal),
    ("!=", Relation::Unequal),
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("<", Relation::Less),
    (">", Relation::Greater),
    ("=", Relation::Equal),
];

fn token(text: &str, first: char) -> Result<(Token, usize), String> {
    if let Some((sign, relation)) = RELATIONS.iter().find(|(sign, _)| text.starts_with(sign)) {
        return Ok((Token::Relation(*relation), sign.len()));
    }
    let while_is = |is: fn(char) -> bool| text[1..].find(|c| !is(c)).map_or(text.len(), |end| end + 1);
    match first {
        '(' => Ok((Token::Open, 1)),
        ')' => Ok((Token::Close, 1)),
        '\'' => {
            let end = text[1..].find('\'').ok_or("expected ' at the end of the text")?;
            Ok((Token::Constant(Constant::Text(text[1..=end].to_owned())), end + 2))
        }
        '%' => {
            let length = while_is(|c| c.is_ascii_digit());
            let parameter = text[1..length].parse().map_err(|_| "expected a number after %".to_owned())?;
            Ok((Token::Parameter(parameter), length))
        }
        _ if first.is_ascii_digit() || matches!(first, '-' | '+' | '.') => {
            let mut length = while_is(|c| c.is_ascii_alphanumeric() || c == '.');
            // The sign of an exponent.
            if text[..length].ends_with(['e', 'E']) && text[length..].starts_with(['-', '+']) {
                let digits = text[length + 1..].find(|c: char| !c.is_ascii_digit());
                length = digits.map_or(text.len(), |end| length + 1 + end);
            }
            let constant = number(&text[..length]).ok_or_else(|| format!("{:?} is no number", &text[..length]))?;
            Ok((Token::Constant(constant), length))
        }
        _ if first.is_ascii_alphabetic() || first == '_' => {
            let length = while_is(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
            Ok((Token::Word(text[..length].to_owned()), length))
        }
        _ => Err(format!("{first:?} has no meaning here")),
    }
}
