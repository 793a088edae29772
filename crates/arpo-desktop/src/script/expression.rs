//! What an argument may be: literals, variables, lists of them, sums and products of numbers, and texts put together.

use super::tokens::Token;
use super::{Reader, Value};

impl Reader {
    /// A value with everything that is added to it.
    pub(super) fn value(&mut self) -> Option<Value> {
        let mut sum = self.product()?;
        loop {
            sum = if self.take(&Token::Mark('+')) {
                match (sum, self.product()?) {
                    (Value::Text(first), Value::Text(second)) => Value::Text(first + &second),
                    (Value::Number(first), Value::Number(second)) => Value::Number(first + second),
                    _ => return None,
                }
            } else if self.take(&Token::Mark('-')) {
                Value::Number(number(&sum)? - number(&self.product()?)?)
            } else {
                return Some(sum);
            };
        }
    }

    fn product(&mut self) -> Option<Value> {
        let mut product = self.single()?;
        loop {
            product = if self.take(&Token::Mark('*')) {
                Value::Number(number(&product)? * number(&self.single()?)?)
            } else if self.take(&Token::Mark('/')) {
                // dividing by 0 raises in Python
                let divisor = number(&self.single()?).filter(|divisor| *divisor != 0.0)?;
                Value::Number(number(&product)? / divisor)
            } else {
                return Some(product);
            };
        }
    }

    fn single(&mut self) -> Option<Value> {
        Some(match self.next()? {
            Token::Number(number) => Value::Number(number),
            Token::Mark('-') => Value::Number(-number(&self.single()?)?),
            Token::Text(mut text) => {
                // texts that follow each other are one
                while let Some(Token::Text(more)) = self.peek() {
                    text.push_str(more);
                    self.at += 1;
                }
                Value::Text(text)
            }
            Token::Name(name) => match name.as_str() {
                "True" => Value::Truth(true),
                "False" => Value::Truth(false),
                "None" => Value::Nothing,
                "pyautogui" if self.take(&Token::Mark('.')) => {
                    let name = self.name()?;
                    (name == "linear" || name.starts_with("ease")).then_some(Value::Easing)?
                }
                name => self.variables.get(name)?.clone(),
            },
            Token::Mark('[') => Value::List(self.values(']')?.0),
            Token::Mark('(') => match self.values(')')? {
                (mut values, false) if values.len() == 1 => values.remove(0),
                (values, _) => Value::List(values),
            },
            Token::Mark(_) | Token::End => return None,
        })
    }

    /// The values up to a bracket, and whether a comma ends them.
    fn values(&mut self, close: char) -> Option<(Vec<Value>, bool)> {
        let (mut values, mut comma) = (Vec::new(), false);
        while !self.take(&Token::Mark(close)) {
            values.push(self.value()?);
            comma = self.take(&Token::Mark(','));
            if !comma && self.peek() != Some(&Token::Mark(close)) {
                return None;
            }
        }
        Some((values, comma))
    }
}

fn number(value: &Value) -> Option<f64> {
    if let Value::Number(number) = value { Some(*number) } else { None }
}
