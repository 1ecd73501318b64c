//! Shapes of values as serde sees them: fields in order, variants with their numbers. Has a
//! serializer that records shapes instead of bytes, and a deserializer that asks an enum for its
//! variants.

use serde::{
    Deserialize, Serialize,
    de::{self, Visitor},
    ser,
};
use std::{collections::BTreeMap, fmt};

/// Shape of a named type.
#[derive(Debug)]
pub enum Type {
    /// Shape of its only field.
    Newtype(String),
    /// Its fields.
    Struct(Fields),
    /// Variants by number.
    Enum(BTreeMap<u32, (&'static str, Fields)>),
}

/// Name and shape of each field; the name is empty in a tuple. `_` stands for a shape that no value
/// has shown: of `None`, or of an empty list.
pub type Fields = Vec<(&'static str, String)>;

/// Shapes of all types that were added.
#[derive(Debug, Default)]
pub struct Shapes(pub BTreeMap<&'static str, Type>);

impl Shapes {
    /// Adds the shapes in a value.
    pub fn add(&mut self, value: &impl Serialize) {
        value.serialize(self).expect("shapes are never refused");
    }

    /// Renders all shapes as in the documentation.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        for (name, shape) in &self.0 {
            match shape {
                Type::Newtype(of) => lines.push(format!("{name} = {of}")),
                Type::Struct(fields) => lines.push(format!("{name} = {}", list(fields))),
                Type::Enum(variants) => {
                    lines.push(format!("{name} = one of"));
                    for (number, (variant, fields)) in variants {
                        lines.push(format!("  {number} {variant} {}", list(fields)).trim_end().to_owned());
                    }
                }
            }
        }
        lines.join("\n")
    }

    fn learn(&mut self, name: &'static str, learned: Type) {
        match (self.0.get_mut(name), learned) {
            (None, learned) => drop(self.0.insert(name, learned)),
            (Some(Type::Newtype(known)), Type::Newtype(learned)) => merge(known, learned),
            (Some(Type::Struct(known)), Type::Struct(learned)) => merge_fields(known, learned),
            (Some(Type::Enum(known)), Type::Enum(learned)) => {
                for (number, (variant, fields)) in learned {
                    let (_, known) = known.entry(number).or_insert_with(|| (variant, fields.clone()));
                    merge_fields(known, fields);
                }
            }
            (Some(known), learned) => panic!("two types are called `{name}`: {known:?} and {learned:?}"),
        }
    }

    fn shape(&mut self, value: &(impl Serialize + ?Sized)) -> String {
        value.serialize(self).expect("shapes are never refused")
    }

    fn variant(&mut self, name: &'static str, (number, variant): (u32, &'static str), fields: Fields) -> String {
        self.learn(name, Type::Enum([(number, (variant, fields))].into()));
        name.into()
    }
}

fn list(fields: &Fields) -> String {
    let field = |(name, shape): &(&str, String)| {
        if name.is_empty() { shape.clone() } else { format!("{name}: {shape}") }
    };
    fields.iter().map(field).collect::<Vec<_>>().join(", ")
}

fn merge_fields(known: &mut Fields, learned: Fields) {
    for ((_, known), (_, learned)) in known.iter_mut().zip(learned) {
        merge(known, learned);
    }
}

fn merge(known: &mut String, learned: String) {
    if known.contains('_') {
        *known = learned;
    } else {
        assert!(learned.contains('_') || *known == learned, "{known} and {learned} in one place");
    }
}

/// Error type of the serializer, which never fails.
#[derive(Debug)]
pub struct Never(String);

impl fmt::Display for Never {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Never {}

impl ser::Error for Never {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl de::Error for Never {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

type Shape = Result<String, Never>;

/// The recorded parts of a compound value.
pub struct Parts<'a> {
    shapes: &'a mut Shapes,
    name: &'static str,
    variant: Option<(u32, &'static str)>,
    fields: Fields,
}

impl<'a> Parts<'a> {
    fn of(shapes: &'a mut Shapes, name: &'static str, variant: Option<(u32, &'static str)>) -> Self {
        Self { shapes, name, variant, fields: Vec::new() }
    }

    fn add(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) {
        let shape = self.shapes.shape(value);
        self.fields.push((name, shape));
    }

    fn named(self) -> String {
        let Self { shapes, name, variant, fields } = self;
        let Some(variant) = variant else {
            shapes.learn(name, Type::Struct(fields));
            return name.into();
        };
        shapes.variant(name, variant, fields)
    }

    /// Merges the shapes of all elements.
    fn element(self) -> String {
        let mut element = "_".to_owned();
        for (_, shape) in self.fields {
            merge(&mut element, shape);
        }
        element
    }
}

macro_rules! plain {
    ($($method:ident: $type:ty => $shape:literal),*) => {
        $(fn $method(self, _: $type) -> Shape { Ok($shape.into()) })*
    };
}

impl<'a> ser::Serializer for &'a mut Shapes {
    type Ok = String;
    type Error = Never;
    type SerializeSeq = Parts<'a>;
    type SerializeTuple = Parts<'a>;
    type SerializeTupleStruct = Parts<'a>;
    type SerializeTupleVariant = Parts<'a>;
    type SerializeMap = Parts<'a>;
    type SerializeStruct = Parts<'a>;
    type SerializeStructVariant = Parts<'a>;

    plain! {
        serialize_bool: bool => "bool", serialize_i8: i8 => "i8", serialize_i16: i16 => "i16", serialize_i32: i32 => "i32",
        serialize_i64: i64 => "i64", serialize_u8: u8 => "u8", serialize_u16: u16 => "u16", serialize_u32: u32 => "u32",
        serialize_u64: u64 => "u64", serialize_f32: f32 => "f32", serialize_f64: f64 => "f64", serialize_char: char => "char",
        serialize_str: &str => "text", serialize_bytes: &[u8] => "bytes"
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_none(self) -> Shape {
        Ok("_?".into())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Shape {
        Ok(format!("{}?", self.shape(value)))
    }

    fn serialize_unit(self) -> Shape {
        Ok("nothing".into())
    }

    fn serialize_unit_struct(self, name: &'static str) -> Shape {
        Ok(Parts::of(self, name, None).named())
    }

    fn serialize_unit_variant(self, name: &'static str, number: u32, variant: &'static str) -> Shape {
        Ok(Parts::of(self, name, Some((number, variant))).named())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Shape {
        let shape = self.shape(value);
        self.learn(name, Type::Newtype(shape));
        Ok(name.into())
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        number: u32,
        variant: &'static str,
        value: &T,
    ) -> Shape {
        let mut parts = Parts::of(self, name, Some((number, variant)));
        parts.add("", value);
        Ok(parts.named())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'a>, Never> {
        Ok(Parts::of(self, "", None))
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts<'a>, Never> {
        Ok(Parts::of(self, "", None))
    }

    fn serialize_tuple_struct(self, name: &'static str, _: usize) -> Result<Parts<'a>, Never> {
        Ok(Parts::of(self, name, None))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        number: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'a>, Never> {
        Ok(Parts::of(self, name, Some((number, variant))))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts<'a>, Never> {
        Ok(Parts::of(self, "", None))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Parts<'a>, Never> {
        Ok(Parts::of(self, name, None))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        number: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Parts<'a>, Never> {
        Ok(Parts::of(self, name, Some((number, variant))))
    }
}

impl ser::SerializeSeq for Parts<'_> {
    type Ok = String;
    type Error = Never;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Never> {
        self.add("", value);
        Ok(())
    }

    fn end(self) -> Shape {
        Ok(format!("[{}]", self.element()))
    }
}

impl ser::SerializeTuple for Parts<'_> {
    type Ok = String;
    type Error = Never;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Never> {
        self.add("", value);
        Ok(())
    }

    fn end(self) -> Shape {
        Ok(format!("({})", list(&self.fields)))
    }
}

impl ser::SerializeTupleStruct for Parts<'_> {
    type Ok = String;
    type Error = Never;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Never> {
        self.add("", value);
        Ok(())
    }

    fn end(self) -> Shape {
        Ok(self.named())
    }
}

impl ser::SerializeTupleVariant for Parts<'_> {
    type Ok = String;
    type Error = Never;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Never> {
        self.add("", value);
        Ok(())
    }

    fn end(self) -> Shape {
        Ok(self.named())
    }
}

impl ser::SerializeMap for Parts<'_> {
    type Ok = String;
    type Error = Never;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Never> {
        self.add("", key);
        Ok(())
    }

    /// Appends the value's shape to that of its key.
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Never> {
        let value = self.shapes.shape(value);
        let (_, key) = self.fields.last_mut().expect("a key comes first");
        *key = format!("{key} -> {value}");
        Ok(())
    }

    fn end(self) -> Shape {
        Ok(format!("[{}]", self.element()))
    }
}

impl ser::SerializeStruct for Parts<'_> {
    type Ok = String;
    type Error = Never;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Never> {
        self.add(name, value);
        Ok(())
    }

    fn end(self) -> Shape {
        Ok(self.named())
    }
}

impl ser::SerializeStructVariant for Parts<'_> {
    type Ok = String;
    type Error = Never;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Never> {
        self.add(name, value);
        Ok(())
    }

    fn end(self) -> Shape {
        Ok(self.named())
    }
}

/// Returns the name of an enum, and its variants in order.
pub fn variants<'de, T: Deserialize<'de>>() -> (&'static str, &'static [&'static str]) {
    let mut found = None;
    assert!(T::deserialize(Asking(&mut found)).is_err());
    found.expect("an enum")
}

/// Deserializer that gives no value and records the variants of an enum.
struct Asking<'a>(&'a mut Option<(&'static str, &'static [&'static str])>);

impl<'de> de::Deserializer<'de> for Asking<'_> {
    type Error = Never;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Never> {
        Err(Never("no value".into()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Never> {
        *self.0 = Some((name, variants));
        Err(Never("no value".into()))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}
