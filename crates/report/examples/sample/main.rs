//! Prints a made-up run, for the tests of the page and for viewing the page without a real run:
//! `sample TASKS [done|failed|interrupted|hostile|cluster|large] [json|html]`.

mod generator;

use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let tasks: usize = arguments
        .next()
        .ok_or("usage: sample TASKS [done|failed|interrupted|hostile|cluster|large] [json|html]")?
        .parse()?;
    let story = story(arguments.next().as_deref().unwrap_or("done"))?;
    let run = generator::run(tasks, story);
    let text = match arguments.next().as_deref() {
        None | Some("json") => run.json(),
        Some("html") => report::html(&run),
        Some(other) => return Err(format!("`{other}` is neither json nor html").into()),
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn story(name: &str) -> Result<generator::SampleKind, String> {
    match name {
        "done" => Ok(generator::SampleKind::Done),
        "failed" => Ok(generator::SampleKind::Failed),
        "interrupted" => Ok(generator::SampleKind::Interrupted),
        "cluster" => Ok(generator::SampleKind::Cluster),
        "large" => Ok(generator::SampleKind::LargeCluster),
        "hostile" => Ok(generator::SampleKind::Hostile),
        other => Err(format!("`{other}` is none of done, failed, interrupted, hostile, cluster, large")),
    }
}
