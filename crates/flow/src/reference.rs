//! References: members and arrays as text: `Train`, `Model[0][3]`, `TrainPart[2:5]`.
//!
//! A reference with an index for each dimension names a single member. A reference with fewer
//! indices, or with a slice as the last one, names an array in row-major order. The name of an
//! element never ends with `]`, so the brackets at the end of a reference are its indices.

use crate::model::{DataId, DataRefs, Element, Workflow};

/// The members that a reference names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DataRange {
    pub first: DataId,
    pub count: u32,
    /// True if the reference names an array, which may have length 1.
    pub is_array: bool,
}

/// An index or a slice of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Index {
    At(u32),
    Slice(u32, u32),
}

/// The most indices that a reference may have.
const INDICES_MAX: usize = 16;

// --- reading ---

/// Splits a reference into its name and its indices.
pub(crate) fn parse(text: &str) -> Result<(&str, Vec<Index>), String> {
    let mut indices = Vec::new();
    let mut name = text;
    while let Some(rest) = name.strip_suffix(']') {
        let (before, inside) = rest.rsplit_once('[').ok_or_else(|| format!("`{text}`: a `]` without its `[`"))?;
        indices.push(
            index(inside).ok_or_else(|| format!("`{text}`: `[{inside}]` is neither an index nor a slice `[2:5]`"))?,
        );
        name = before;
        if indices.len() > INDICES_MAX {
            return Err(format!("a reference has more than {INDICES_MAX} indices"));
        }
    }
    indices.reverse();
    Ok((name, indices))
}

fn index(inside: &str) -> Option<Index> {
    // `parse` alone would accept a sign.
    let number = |text: &str| text.parse().ok().filter(|_| text.starts_with(|c: char| c.is_ascii_digit()));
    match inside.split_once(':') {
        Some((from, to)) => Some(Index::Slice(number(from)?, number(to)?)),
        None => number(inside).map(Index::At),
    }
}

/// The members of `element` that `indices` name.
pub(crate) fn resolve(element: &Element, indices: &[Index]) -> Result<DataRange, String> {
    let name = &element.name;
    if indices.len() > element.shape.len() {
        let dimensions = element.shape.len();
        return Err(format!("`{name}` has {dimensions} dimensions, and the reference {} indices", indices.len()));
    }
    let (mut first, mut count) = (element.first.0, element.count);
    for (at, (index, length)) in indices.iter().zip(&element.shape).enumerate() {
        count /= length;
        match *index {
            Index::At(index) if index < *length => first += index * count,
            Index::At(index) => {
                return Err(format!("index {index} of `{name}` is out of bounds: dimension {at} has {length} members"));
            }
            Index::Slice(..) if at + 1 < indices.len() => {
                return Err(format!("`{name}`: a slice can only be the last index"));
            }
            Index::Slice(from, to) if from < to && to <= *length => {
                return Ok(DataRange {
                    first: DataId(first + from * count),
                    count: (to - from) * count,
                    is_array: true,
                });
            }
            Index::Slice(from, to) => {
                return Err(format!("slice {from}:{to} of `{name}` is empty or out of bounds: 0:{length} is all"));
            }
        }
    }
    Ok(DataRange { first: DataId(first), count, is_array: indices.len() < element.shape.len() })
}

// --- writing ---

/// References that together name `data`. The second result is true if there is only one and it
/// names an array.
pub(crate) fn write(workflow: &Workflow, data: &DataRefs) -> (Vec<String>, bool) {
    let mut texts = Vec::new();
    let mut is_array = false;
    match data {
        DataRefs::One(id) => texts.push(workflow.data_name(*id)),
        DataRefs::Run { first, count } => is_array = write_run(workflow, first.0, first.0 + count, &mut texts),
        DataRefs::List(members) => {
            for run in members.chunk_by(|a, b| a.0.checked_add(1) == Some(b.0)) {
                let first = run[0].0;
                let count = u32::try_from(run.len()).unwrap_or(u32::MAX);
                if count == 1 {
                    texts.push(workflow.data_name(run[0]));
                } else {
                    write_run(workflow, first, first + count, &mut texts);
                }
            }
        }
    }
    let alone = is_array && texts.len() == 1;
    (texts, alone)
}

/// Writes references to the members from `from` to before `to`, element by element. Returns whether
/// the last reference names an array.
fn write_run(workflow: &Workflow, mut from: u32, to: u32, texts: &mut Vec<String>) -> bool {
    let mut is_array = false;
    while from < to {
        let element = workflow.element_of(DataId(from));
        let start = element.first.0;
        let end = to.min(start + element.count);
        if element.shape.is_empty() {
            texts.push(element.name.clone());
        } else {
            write_range(&element.name, &element.shape, (from - start, end - start), texts);
        }
        is_array = !element.shape.is_empty();
        from = end;
    }
    is_array
}

/// Writes the fewest references to the flat indices `from..to` of an array of `shape`.
fn write_range(prefix: &str, shape: &[u32], (from, to): (u32, u32), texts: &mut Vec<String>) {
    let inner = &shape[1..];
    let step: u32 = inner.iter().product();
    if (from, to) == (0, shape[0] * step) {
        texts.push(prefix.to_owned());
        return;
    }
    // The range is a partial row at each end, and whole rows between them.
    let (first_whole, last_whole) = (from.div_ceil(step), to / step);
    if first_whole > last_whole {
        let row = from / step;
        write_range(&format!("{prefix}[{row}]"), inner, (from - row * step, to - row * step), texts);
        return;
    }
    if from < first_whole * step {
        let row = first_whole - 1;
        write_range(&format!("{prefix}[{row}]"), inner, (from - row * step, step), texts);
    }
    if last_whole == first_whole + 1 && !inner.is_empty() {
        texts.push(format!("{prefix}[{first_whole}]"));
    } else if first_whole < last_whole {
        texts.push(format!("{prefix}[{first_whole}:{last_whole}]"));
    }
    if last_whole * step < to {
        write_range(&format!("{prefix}[{last_whole}]"), inner, (0, to - last_whole * step), texts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Source;
    use proptest::prelude::*;

    /// Elements `S`, a scalar, id 0; `A`, of 5, ids 1 to 5; `M`, of 3 x 4, ids 6 to 17; `C`, of 2 x
    /// 3 x 2, ids 18 to 29.
    fn workflow() -> Workflow {
        let mut workflow = Workflow::default();
        for (name, shape) in [("S", vec![]), ("A", vec![5]), ("M", vec![3, 4]), ("C", vec![2, 3, 2])] {
            let first = DataId(workflow.data_count());
            let count = shape.iter().product();
            let element = Element { name: name.to_owned(), shape, first, count, source: Source::Defined, file: None };
            workflow.elements.push(element);
        }
        workflow
    }

    fn read(text: &str) -> Result<DataRange, String> {
        let (name, indices) = parse(text)?;
        let workflow = workflow();
        let element = workflow.elements.iter().find(|element| element.name == name).ok_or("unknown")?;
        resolve(element, &indices)
    }

    #[test]
    fn references_name_members_arrays_and_slices() {
        let span = |first, count, is_array| Ok(DataRange { first: DataId(first), count, is_array });
        for (text, expected) in [
            ("S", span(0, 1, false)),
            ("A[4]", span(5, 1, false)),
            ("A", span(1, 5, true)),
            ("A[1:2]", span(2, 1, true)),
            ("M[2][1]", span(15, 1, false)),
            ("M[2]", span(14, 4, true)),
            ("M[1:3]", span(10, 8, true)),
            ("M[2][1:3]", span(15, 2, true)),
            ("C[1][0:2]", span(24, 4, true)),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn references_that_name_nothing_are_refused() {
        for text in ["A[5]", "A[0][0]", "S[0]", "A[2:2]", "A[3:6]", "A[-1]", "A[+1]", "A[]", "A]", "A[1", "M[0:1][0]"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(parse(&"[0]".repeat(100)).is_err());
        assert!(read("A[99999999999]").is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_in_few_references(first in 0u32..30, count in 1u32..30) {
            let workflow = workflow();
            let count = count.min(30 - first);
            let (texts, _) = write(&workflow, &DataRefs::Run { first: DataId(first), count });
            let read: Vec<u32> = texts.iter().flat_map(|text| {
                let span = read(text).expect("reads back");
                span.first.0..span.first.0 + span.count
            }).collect();
            prop_assert_eq!(read, (first..first + count).collect::<Vec<_>>());
            prop_assert!(texts.len() <= 10);
        }
    }
}
