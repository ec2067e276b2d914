//! Reads Rust source far enough to know which paths it names: a lexer without comments and literals, and
//! a reader of `use` trees. No parser: what it cannot read, it takes for a path too many, never too few.

use std::path::{Path, PathBuf};

/// A token with the line it stands on. Literals become `""`, so that a text never looks like code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

/// A path of two or more names, or the one name of a `use`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub path: Vec<String>,
    pub line: usize,
}

impl Named {
    pub fn starts_with(&self, prefix: &str) -> bool {
        let prefix: Vec<&str> = prefix.split("::").collect();
        self.path.len() >= prefix.len() && self.path.iter().zip(&prefix).all(|(name, wanted)| name == wanted)
    }
}

pub fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut found = Vec::new();
    let (mut here, mut line) = (0, 1);
    while here < chars.len() {
        let start = here;
        let char = at(here);
        let text = if char.is_whitespace() {
            here += 1;
            None
        } else if char == '/' && at(here + 1) == '/' {
            while here < chars.len() && at(here) != '\n' {
                here += 1;
            }
            None
        } else if char == '/' && at(here + 1) == '*' {
            here = end_of_comment(&chars, here);
            None
        } else if let Some(end) = end_of_raw(&chars, here) {
            here = end;
            Some("\"\"".to_owned())
        } else if char == '"' {
            here = end_of_quoted(&chars, here, '"');
            Some("\"\"".to_owned())
        } else if char == '\'' && (at(here + 1) == '\\' || at(here + 2) == '\'') {
            here = end_of_quoted(&chars, here, '\'');
            Some("\"\"".to_owned())
        } else if char.is_alphanumeric() || char == '_' {
            while at(here).is_alphanumeric() || at(here) == '_' {
                here += 1;
            }
            Some(chars[start..here].iter().collect())
        } else if char == ':' && at(here + 1) == ':' {
            here += 2;
            Some("::".to_owned())
        } else {
            here += 1;
            Some(char.to_string())
        };
        if let Some(text) = text {
            found.push(Token { text, line });
        }
        line += chars[start..here].iter().filter(|char| **char == '\n').count();
    }
    found
}

fn end_of_comment(chars: &[char], start: usize) -> usize {
    let (mut here, mut depth) = (start, 0);
    while here < chars.len() {
        match (chars[here], chars.get(here + 1)) {
            ('/', Some('*')) => (depth, here) = (depth + 1, here + 2),
            ('*', Some('/')) => (depth, here) = (depth - 1, here + 2),
            _ => here += 1,
        }
        if depth == 0 {
            break;
        }
    }
    here
}

/// The end of `r"…"`, `r#"…"#`, `br…`, if one begins here.
fn end_of_raw(chars: &[char], start: usize) -> Option<usize> {
    let mut here = start;
    if matches!(chars[here], 'b' | 'c') {
        here += 1;
    }
    if chars.get(here) != Some(&'r') || (start > 0 && chars[start - 1].is_alphanumeric()) {
        return None;
    }
    let hashes = chars[here + 1..].iter().take_while(|char| **char == '#').count();
    here += 1 + hashes;
    if chars.get(here) != Some(&'"') {
        return None;
    }
    let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let rest = &chars[here + 1..];
    let length = rest.windows(close.len()).position(|window| window == close).unwrap_or(rest.len());
    Some((here + 1 + length + close.len()).min(chars.len()))
}

fn end_of_quoted(chars: &[char], start: usize, quote: char) -> usize {
    let mut here = start + 1;
    while here < chars.len() && chars[here] != quote {
        here += if chars[here] == '\\' { 2 } else { 1 };
    }
    (here + 1).min(chars.len())
}

fn is_name(text: &str) -> bool {
    text.chars().next().is_some_and(|char| char.is_alphabetic() || char == '_')
}

/// Every path that the tokens name. A path inside a path's generics is found by itself.
pub fn paths(tokens: &[Token]) -> Vec<Named> {
    let mut found = Vec::new();
    let mut here = 0;
    while here < tokens.len() {
        let token = &tokens[here];
        if token.text == "use" && tokens.get(here + 1).is_some_and(|next| next.text != "<") {
            here = use_tree(tokens, here + 1, &[], &mut found);
        } else if is_name(&token.text) && (here == 0 || tokens[here - 1].text != "::") {
            here = inline(tokens, here, &mut found);
        } else {
            here += 1;
        }
    }
    found
}

fn inline(tokens: &[Token], start: usize, found: &mut Vec<Named>) -> usize {
    let mut path = vec![tokens[start].text.clone()];
    let mut here = start + 1;
    while let [colons, name, ..] = &tokens[here..] {
        if colons.text != "::" || !is_name(&name.text) {
            break;
        }
        path.push(name.text.clone());
        here += 2;
    }
    if path.len() > 1 {
        found.push(Named { path, line: tokens[start].line });
    }
    here
}

/// Reads one tree of a `use` and gives the place after it.
fn use_tree(tokens: &[Token], start: usize, prefix: &[String], found: &mut Vec<Named>) -> usize {
    let mut path = prefix.to_vec();
    let mut here = start;
    while let Some(token) = tokens.get(here) {
        match token.text.as_str() {
            "::" => here += 1,
            "{" => {
                here += 1;
                while tokens.get(here).is_some_and(|token| token.text != "}") {
                    here = use_tree(tokens, here, &path, found);
                    if tokens.get(here).is_some_and(|token| token.text == ",") {
                        here += 1;
                    }
                }
                return here + 1;
            }
            "as" => here += 2,
            name if is_name(name) || name == "*" => {
                path.push(name.to_owned());
                here += 1;
            }
            _ => break,
        }
    }
    if path.len() > prefix.len() {
        found.push(Named { path, line: tokens[start].line });
    }
    // Anything that is no part of a tree ends it; a stray token must not stop the reader.
    here.max(start + 1)
}

/// The package's root.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a directory of the package with this extension, as path from the root and text.
pub fn files(below: &str, extension: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(&root().join(below), &mut |path| {
        if path.extension().is_some_and(|given| given == extension) {
            let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            found.push((name, std::fs::read_to_string(path).unwrap()));
        }
    });
    found.sort();
    found
}

fn collect(directory: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, each);
        } else {
            each(&path);
        }
    }
}
