//! The syntax tree of a script, as it was written.

use crate::source::Span;
use std::sync::Arc;

/// A name and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceName {
    /// The name.
    pub text: Arc<str>,
    /// The position.
    pub span: Span,
}

/// A file of a program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SwiftModule {
    /// Definitions and statements in the order of the file.
    pub statements: Vec<Statement>,
}

/// A type as it is written: `int`, `bag<file>`, `int|float`, with the arrays around it.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeExpression {
    /// The type, or the alternatives of a union.
    pub alternatives: Vec<NamedType>,
    /// The type of the index of each array around it, the outermost first; `None` is `int`.
    pub indices: Vec<Option<TypeExpression>>,
    /// The position.
    pub span: Span,
}

/// A type that has a name.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedType {
    /// The name.
    pub name: SourceName,
    /// The type of the members, of a `bag`.
    pub parameter: Option<Box<TypeExpression>>,
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// Its action.
    pub kind: StatementKind,
    /// The position.
    pub span: Span,
}

/// Statements in braces.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatementBlock {
    /// The statements.
    pub statements: Vec<Statement>,
    /// The position of the opening brace.
    pub span: Span,
}

/// The action of a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum StatementKind {
    /// Defines a function.
    Function(FunctionDefinition),
    /// Defines a function that runs a program.
    App(AppDefinition),
    /// Defines a struct: `type person { string name; }`.
    Struct {
        /// The name of the type.
        name: SourceName,
        /// The fields.
        fields: Vec<(TypeExpression, SourceName)>,
    },
    /// Defines a type that is another one: `typedef t file;`, or `type t file;`.
    Alias {
        /// The name of the type.
        name: SourceName,
        /// The other type.
        base: TypeExpression,
        /// True if the two are the same type (`typedef`); else the new one is a kind of the other.
        is_same: bool,
    },
    /// Makes another module known: `import io;`, `import "dir/file";`.
    Import {
        /// The parts of the name; one if it was a string.
        path: Vec<SourceName>,
    },
    /// Says something to another compiler.
    Pragma,
    /// Declares arguments of the command line: `arguments(string name);`, or flags.
    Arguments {
        /// The arguments.
        declared: Vec<Parameter>,
        /// True if they are flags (`--name=value`).
        are_flags: bool,
    },
    /// Declares variables of one type.
    Declaration(Declaration),
    /// Gives variables their values.
    Assignment(AssignmentStatement),
    /// Lets an app write files: `[a, b] = f(x);`.
    Files {
        /// The files.
        files: Vec<SourceName>,
        /// The call.
        call: FunctionCall,
    },
    /// Calls a function, or names a variable, for a chain.
    Expression(Expression),
    /// A statement that begins when the values of another one are there: `a => b`.
    Chain(Box<Statement>, Box<Statement>),
    /// Statements with variables of their own.
    Block(StatementBlock),
    /// `if`.
    If {
        /// The condition.
        condition: Expression,
        /// The statements if it holds.
        then: StatementBlock,
        /// The statements otherwise.
        otherwise: Option<StatementBlock>,
    },
    /// `switch`.
    Switch {
        /// The value.
        value: Expression,
        /// The cases; `None` is `default`.
        cases: Vec<(Option<i64>, StatementBlock)>,
    },
    /// `foreach`.
    Foreach {
        /// The variable of the values.
        value: SourceName,
        /// The variable of the indices.
        index: Option<SourceName>,
        /// The array.
        array: Expression,
        /// The body.
        body: StatementBlock,
        /// Annotations before it.
        annotations: Vec<Annotation>,
    },
    /// `for`: each iteration has variables of its own, with values from the one before.
    For {
        /// The variables, with their types if they are declared, and their first values.
        variables: Vec<(Option<TypeExpression>, SourceName, Expression)>,
        /// The condition of a further iteration.
        condition: Expression,
        /// The values of the next iteration.
        updates: Vec<(SourceName, Expression)>,
        /// The body.
        body: StatementBlock,
        /// Annotations before it.
        annotations: Vec<Annotation>,
    },
    /// `iterate`: the body runs with 0, 1, ... until a condition that it sets holds.
    Iterate {
        /// The variable.
        variable: SourceName,
        /// The body.
        body: StatementBlock,
        /// The condition.
        until: Expression,
    },
    /// `wait`: the body begins when values are there.
    Wait {
        /// The values.
        values: Vec<Expression>,
        /// True if the members of arrays and structs must be there too.
        is_deep: bool,
        /// The body.
        body: StatementBlock,
    },
}

/// Variables that are declared together.
#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    /// The variables.
    pub variables: Vec<DeclaredVariable>,
    /// True if it is a constant (`global const`).
    pub is_constant: bool,
}

/// A variable that is declared.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredVariable {
    /// The type.
    pub type_: TypeExpression,
    /// The name.
    pub name: SourceName,
    /// The path of a file: `file f<"a.txt">`.
    pub mapping: Option<Expression>,
    /// The value.
    pub value: Option<Expression>,
}

/// An assignment.
#[derive(Debug, Clone, PartialEq)]
pub struct AssignmentStatement {
    /// The variables and members that get values.
    pub targets: Vec<AssignmentTarget>,
    /// The values: one call for several targets, or one value for each.
    pub values: Vec<Expression>,
    /// True if values are added to arrays (`+=`).
    pub appends: bool,
}

/// A variable, or a member of one.
#[derive(Debug, Clone, PartialEq)]
pub struct AssignmentTarget {
    /// The variable.
    pub variable: SourceName,
    /// The way from the variable to its member.
    pub path: Vec<MemberStep>,
}

/// A step to a member.
#[derive(Debug, Clone, PartialEq)]
pub enum MemberStep {
    /// To a member of an array.
    Index(Expression),
    /// To a field of a struct.
    Field(SourceName),
}

/// A function.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionDefinition {
    /// The name.
    pub name: SourceName,
    /// Names that stand for types.
    pub type_parameters: Vec<SourceName>,
    /// The outputs.
    pub outputs: Vec<Parameter>,
    /// The inputs.
    pub inputs: Vec<Parameter>,
    /// The body; `None` if it is in Tcl, or in the library.
    pub body: Option<StatementBlock>,
    /// The only string in place of a body: the name of a function of the library.
    pub library_name: Option<Arc<str>>,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
}

/// A function that runs a program.
#[derive(Debug, Clone, PartialEq)]
pub struct AppDefinition {
    /// The name.
    pub name: SourceName,
    /// The outputs.
    pub outputs: Vec<Parameter>,
    /// The inputs.
    pub inputs: Vec<Parameter>,
    /// The program and its arguments.
    pub command: Vec<AppWord>,
    /// The files of its standard streams.
    pub streams: Vec<(StandardStream, Expression)>,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
}

/// A word of a command line.
#[derive(Debug, Clone, PartialEq)]
pub enum AppWord {
    /// A value.
    Value(Expression),
    /// The path of a file: `@f`.
    Path(SourceName),
}

/// A standard stream of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandardStream {
    /// Standard input.
    Input,
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// A parameter of a function.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// The type.
    pub type_: TypeExpression,
    /// The name.
    pub name: SourceName,
    /// True if there may be any number of them (`...`).
    pub is_variadic: bool,
    /// The value if none is given.
    pub default: Option<Expression>,
}

/// An annotation: `@prio=1`, `@pure`.
#[derive(Debug, Clone, PartialEq)]
pub struct Annotation {
    /// The name.
    pub name: SourceName,
    /// The value.
    pub value: Option<Expression>,
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    /// Its kind.
    pub kind: ExpressionKind,
    /// The position; of an operation that of its operator.
    pub span: Span,
}

/// The kind of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum ExpressionKind {
    /// A whole number.
    Int(i64),
    /// A number with a point.
    Float(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// A string.
    Text(Arc<str>),
    /// A variable.
    Variable(Arc<str>),
    /// A call of a function.
    Call(FunctionCall),
    /// An operation of one value.
    Unary(UnaryOperator, Box<Expression>),
    /// An operation of two values.
    Binary(BinaryOperator, Box<(Expression, Expression)>),
    /// A member of an array.
    Index(Box<(Expression, Expression)>),
    /// A field of a struct.
    Field(Box<Expression>, SourceName),
    /// An array of these values: `[1, 2]`.
    Array(Vec<Expression>),
    /// An array of the numbers of a range: `[start:end:step]`, with its end.
    Range {
        /// The first number.
        start: Box<Expression>,
        /// The last number.
        end: Box<Expression>,
        /// The distance; 1 if there is none.
        step: Option<Box<Expression>>,
    },
    /// An array of these values at these indices: `{"a": 1}`.
    Map(Vec<(Expression, Expression)>),
    /// Several values.
    Tuple(Vec<Expression>),
}

/// A call of a function.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionCall {
    /// The function.
    pub function: SourceName,
    /// The arguments, with their names if they have some.
    pub arguments: Vec<(Option<SourceName>, Expression)>,
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
}

/// An operator before a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnaryOperator {
    /// `-`.
    Negate,
    /// `!`.
    Not,
}

/// An operator between two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOperator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Add,
    Subtract,
    Multiply,
    Divide,
    IntegerDivide,
    Modulo,
    /// `%`: a string with its values in place of conversions, as `sprintf` does it.
    Format,
    Power,
}
