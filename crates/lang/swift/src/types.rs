//! Types of values.

use std::collections::HashMap;
use std::sync::Arc;

/// A type. Equal types have equal numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(u32);

impl TypeId {
    /// Whole numbers of 64 bits.
    pub const INT: Self = Self(0);
    /// Numbers with a point, of 64 bits.
    pub const FLOAT: Self = Self(1);
    /// Strings.
    pub const STRING: Self = Self(2);
    /// True or false.
    pub const BOOLEAN: Self = Self(3);
    /// Nothing: that something has happened.
    pub const VOID: Self = Self(4);
    /// Files.
    pub const FILE: Self = Self(5);
    /// Locations of tasks.
    pub const LOCATION: Self = Self(6);
    /// `HARD` and `SOFT`.
    pub const STRICTNESS: Self = Self(7);
    /// `RANK` and `NODE`.
    pub const ACCURACY: Self = Self(8);
    /// The type of an expression that has a problem: fits everywhere, so that it is told once.
    pub const WRONG: Self = Self(9);
}

/// The kind of a type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TypeKind {
    /// A type without parts, with its name.
    Plain(&'static str),
    /// An array.
    Array {
        /// The type of its indices.
        index: TypeId,
        /// The type of its members.
        member: TypeId,
    },
    /// A bag of members without indices.
    Bag(TypeId),
    /// A struct, by its number.
    Struct(u32),
    /// A type that is a kind of another one (`type t file;`).
    KindOf {
        /// Its name.
        name: Arc<str>,
        /// The other one.
        base: TypeId,
    },
    /// A name that stands for a type, in the signature of a function of the library.
    Parameter(Arc<str>),
}

/// A struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StructType {
    /// Its name.
    pub name: Arc<str>,
    /// The names and types of its fields.
    pub fields: Vec<(Arc<str>, TypeId)>,
}

/// The conversion of a value to another type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conversion {
    /// It is of that type.
    Same,
    /// Its type is a kind of that type.
    Base,
    /// A whole number becomes one with a point.
    IntToFloat,
}

/// All types of a program.
#[derive(Debug, Clone)]
pub struct TypeTable {
    kinds: Vec<TypeKind>,
    ids: HashMap<TypeKind, TypeId>,
    structs: Vec<StructType>,
}

impl Default for TypeTable {
    fn default() -> Self {
        let mut table = Self { kinds: Vec::new(), ids: HashMap::new(), structs: Vec::new() };
        let names = [
            "int",
            "float",
            "string",
            "boolean",
            "void",
            "file",
            "location",
            "LocationStrictness",
            "LocationAccuracy",
            "(wrong)",
        ];
        for name in names {
            table.id(TypeKind::Plain(name));
        }
        table
    }
}

impl TypeTable {
    /// The number of a type.
    pub fn id(&mut self, kind: TypeKind) -> TypeId {
        if let Some(id) = self.ids.get(&kind) {
            return *id;
        }
        let id = TypeId(u32::try_from(self.kinds.len()).expect("types are few"));
        self.kinds.push(kind.clone());
        self.ids.insert(kind, id);
        id
    }

    /// The kind of a type.
    pub fn kind(&self, TypeId(id): TypeId) -> &TypeKind {
        &self.kinds[id as usize]
    }

    /// Adds a struct.
    pub fn add_struct(&mut self, name: Arc<str>) -> TypeId {
        let number = u32::try_from(self.structs.len()).expect("types are few");
        self.structs.push(StructType { name, fields: Vec::new() });
        self.id(TypeKind::Struct(number))
    }

    /// The struct of a type; `None` if it is none.
    pub fn as_struct(&self, id: TypeId) -> Option<&StructType> {
        match self.kind(self.base_of(id)) {
            TypeKind::Struct(number) => self.structs.get(*number as usize),
            _ => None,
        }
    }

    /// Sets the fields of a struct.
    pub fn set_fields(&mut self, id: TypeId, fields: Vec<(Arc<str>, TypeId)>) {
        if let TypeKind::Struct(number) = self.kinds[id.0 as usize] {
            self.structs[number as usize].fields = fields;
        }
    }

    /// An array of these members.
    pub fn array(&mut self, index: TypeId, member: TypeId) -> TypeId {
        self.id(TypeKind::Array { index, member })
    }

    /// The types of indices and members of an array.
    pub fn as_array(&self, id: TypeId) -> Option<(TypeId, TypeId)> {
        match self.kind(self.base_of(id)) {
            TypeKind::Array { index, member } => Some((*index, *member)),
            _ => None,
        }
    }

    /// The type of the members of an array or a bag.
    pub fn member_of(&self, id: TypeId) -> Option<TypeId> {
        match self.kind(self.base_of(id)) {
            TypeKind::Array { member, .. } | TypeKind::Bag(member) => Some(*member),
            _ => None,
        }
    }

    /// The type that a type is a kind of, or else itself.
    pub fn base_of(&self, id: TypeId) -> TypeId {
        match self.kind(id) {
            TypeKind::KindOf { base, .. } => self.base_of(*base),
            _ => id,
        }
    }

    /// The conversion of a value to another type; `None` if there is none.
    pub fn conversion(&self, from: TypeId, to: TypeId) -> Option<Conversion> {
        if from == to || from == TypeId::WRONG || to == TypeId::WRONG {
            return Some(Conversion::Same);
        }
        if let TypeKind::KindOf { base, .. } = self.kind(from)
            && self.conversion(*base, to).is_some_and(|found| found <= Conversion::Base)
        {
            return Some(Conversion::Base);
        }
        (self.base_of(from) == TypeId::INT && to == TypeId::FLOAT).then_some(Conversion::IntToFloat)
    }

    /// The name of a type, as it is written behind a variable: `int[string][]`.
    pub fn name(&self, id: TypeId) -> String {
        match self.kind(id) {
            TypeKind::Plain(name) => (*name).to_owned(),
            TypeKind::Array { .. } => self.array_name(id),
            TypeKind::Bag(member) => format!("bag<{}>", self.name(*member)),
            TypeKind::Struct(number) => self.structs[*number as usize].name.to_string(),
            TypeKind::KindOf { name, .. } | TypeKind::Parameter(name) => name.to_string(),
        }
    }

    fn array_name(&self, id: TypeId) -> String {
        let (mut indices, mut inner) = (String::new(), id);
        while let TypeKind::Array { index, member } = self.kind(inner) {
            let index = if *index == TypeId::INT { String::new() } else { self.name(*index) };
            indices = format!("{indices}[{index}]");
            inner = *member;
        }
        format!("{}{indices}", self.name(inner))
    }

    /// Returns whether variables of the type get their values in parts: arrays, bags and structs.
    pub fn has_parts(&self, id: TypeId) -> bool {
        matches!(self.kind(self.base_of(id)), TypeKind::Array { .. } | TypeKind::Bag(_) | TypeKind::Struct(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_types_are_the_same_and_have_names() {
        let mut types = TypeTable::default();
        let inner = types.array(TypeId::INT, TypeId::FILE);
        let outer = types.array(TypeId::STRING, inner);
        assert_eq!(types.array(TypeId::INT, TypeId::FILE), inner);
        assert_eq!((types.name(outer), types.name(TypeId::BOOLEAN)), ("file[string][]".into(), "boolean".into()));
        let bag = types.id(TypeKind::Bag(outer));
        assert_eq!(types.name(bag), "bag<file[string][]>");
    }

    #[test]
    fn whole_numbers_become_others_and_kinds_become_their_bases() {
        let mut types = TypeTable::default();
        let sorted = types.id(TypeKind::KindOf { name: "sorted".into(), base: TypeId::FILE });
        assert_eq!(types.conversion(TypeId::INT, TypeId::FLOAT), Some(Conversion::IntToFloat));
        assert_eq!(types.conversion(TypeId::FLOAT, TypeId::INT), None);
        assert_eq!(types.conversion(sorted, TypeId::FILE), Some(Conversion::Base));
        assert_eq!(types.conversion(TypeId::FILE, sorted), None);
    }

    #[test]
    fn structs_have_fields() {
        let mut types = TypeTable::default();
        let person = types.add_struct("person".into());
        types.set_fields(person, vec![("name".into(), TypeId::STRING)]);
        assert_eq!(types.as_struct(person).map(|found| found.fields.len()), Some(1));
        assert!(types.has_parts(person) && !types.has_parts(TypeId::FILE));
    }
}
