//! Counts the words of standard input, in a store: what was counted before is counted too.
//!
//! `cargo run -p betree --example words STORE < TEXT`
#![expect(clippy::print_stdout, reason = "its output")]

use betree::{Options, Store};
use std::{env, error::Error, io, ops::Bound, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: words STORE < TEXT")?;
    let store = Store::open(Path::new(&path), Options::default())?;
    let words = store.database("words")?;
    for word in io::read_to_string(io::stdin())?.split_whitespace() {
        let before =
            words.get(word.as_bytes()).map_or(Ok(0), |count| String::from_utf8_lossy(&count).parse::<u64>())?;
        words.put(word.as_bytes(), (before + 1).to_string().as_bytes())?;
    }
    for (word, count) in words.scan(Bound::Unbounded, usize::MAX) {
        println!("{} {}", String::from_utf8_lossy(&count), String::from_utf8_lossy(&word));
    }
    Ok(())
}
