//! The descriptor as written, with names unresolved. Texts without escapes are borrowed.

use crate::model::TaskPlacing;
use crate::tool::{ConfigValue, Tool};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWorkflow<'a> {
    pub tidemill_flow: u32,
    #[serde(borrow, default)]
    pub name: Cow<'a, str>,
    pub tools: Vec<Tool>,
    #[serde(borrow)]
    pub elements: Vec<RawElement<'a>>,
    #[serde(borrow)]
    pub tasks: Vec<RawTask<'a>>,
}

/// Elements and tasks that were added to a workflow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGrowth<'a> {
    #[serde(borrow)]
    pub elements: Vec<RawElement<'a>>,
    #[serde(borrow)]
    pub tasks: Vec<RawTask<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawElement<'a> {
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    #[serde(default)]
    pub shape: Vec<u32>,
    #[serde(borrow, default)]
    pub input: Option<RawFiles<'a>>,
    #[serde(borrow, default)]
    pub file: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTask<'a> {
    #[serde(borrow)]
    pub tool: Cow<'a, str>,
    #[serde(borrow, default)]
    pub files: Pairs<'a, RawRefs<'a>>,
    #[serde(borrow, default)]
    pub config: Pairs<'a, ConfigValue>,
    #[serde(default)]
    pub after: Vec<u32>,
    #[serde(default)]
    pub line: u32,
    #[serde(default)]
    pub placing: Option<Box<TaskPlacing>>,
}

/// A text in a list.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// A text, or a list of texts: references, or input files.
pub(super) enum OneOrMany<'a> {
    One(Cow<'a, str>),
    Many(Vec<Text<'a>>),
}

pub(super) type RawRefs<'a> = OneOrMany<'a>;
pub(super) type RawFiles<'a> = OneOrMany<'a>;

impl<'de: 'a, 'a> Deserialize<'de> for OneOrMany<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrList<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for TextOrList<'a> {
            type Value = OneOrMany<'a>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a text or a list of texts")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(OneOrMany::One(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(OneOrMany::One(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = items.next_element::<Text<'a>>()? {
                    texts.push(text);
                }
                Ok(OneOrMany::Many(texts))
            }
        }
        deserializer.deserialize_any(TextOrList(PhantomData))
    }
}

/// An object with arbitrary names, in the order of the text. A repeated name is refused.
pub(super) struct Pairs<'a, V>(pub Vec<(Cow<'a, str>, V)>);

impl<V> Default for Pairs<'_, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// The most entries of an object. A tool has no more parameters than `crate::PARAMS_MAX`, and the
/// search for repeated names is quadratic.
const PAIRS_MAX: usize = 1_000;

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Pairs<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<'a, V>(PhantomData<(&'a (), V)>);
        impl<'de: 'a, 'a, V: Deserialize<'de>> Visitor<'de> for Object<'a, V> {
            type Value = Pairs<'a, V>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object of parameters")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs: Vec<(Cow<'a, str>, V)> = Vec::new();
                while let Some(Text(name)) = map.next_key::<Text<'a>>()? {
                    if pairs.iter().any(|(known, _)| *known == name) {
                        return Err(de::Error::custom(format_args!("parameter `{name}` stands twice")));
                    }
                    if pairs.len() == PAIRS_MAX {
                        return Err(de::Error::custom(format_args!("more than {PAIRS_MAX} parameters")));
                    }
                    pairs.push((name, map.next_value()?));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Object(PhantomData))
    }
}
