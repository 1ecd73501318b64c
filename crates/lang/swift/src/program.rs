//! Program: a checked script, with every name resolved.
//!
//! A *frame* holds the variables of a call of a function, or of an iteration of a loop; other
//! blocks share the frame around them. An operation names a variable by the number of frames
//! outwards and the slot there, and lists what it needs before it runs.

use crate::app_declaration::{AppDeclaration, AppId};
use crate::library::PureFunction;
use crate::source::Span;
use crate::types::{TypeId, TypeTable};
use crate::value::SwiftValue;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// A variable as an operation sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariablePlace {
    /// The number of frames outwards.
    pub hops: u16,
    /// The slot of that frame.
    pub slot: u32,
}

/// The kind of a need of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NeedKind {
    /// A value. Arrays, structs and files always have one.
    Value,
    /// A file whose writer is known, or each of an array that is closed.
    Assigned,
    /// A file whose path is known, if it has one, or each of an array that is closed.
    Mapped,
    /// An array that gets no more members.
    Closed,
    /// Everything: arrays are closed and their members there, files are written.
    Ready,
}

/// A need of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Need {
    /// The variable.
    pub place: VariablePlace,
    /// The kind of the need.
    pub kind: NeedKind,
}

/// The variables of a frame.
#[derive(Debug, Clone, Default)]
pub struct FrameLayout {
    /// The slots.
    pub slots: Vec<SlotLayout>,
}

/// A variable of a frame.
#[derive(Debug, Clone)]
pub struct SlotLayout {
    /// Its name; empty for results within expressions.
    pub name: Arc<str>,
    /// Its type.
    pub type_: TypeId,
    /// The position of its declaration.
    pub span: Span,
    /// Its first content.
    pub start: SlotStart,
}

/// The content of a variable when its frame begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotStart {
    /// Nothing.
    Empty,
    /// An array or bag without members.
    Array,
    /// A struct without values, of this type.
    Struct(TypeId),
    /// A file that has no writer; true if a mapping gives its path.
    File(bool),
}

/// The number of an operation in [`Program::operations`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u32);

/// The number of a layout in [`Program::layouts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayoutId(pub u32);

/// The number of a function in [`Program::functions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u32);

/// Operations that run one after another.
pub type Operations = Vec<OperationId>;

/// An operation: it runs once, when its needs are met.
#[derive(Debug)]
pub struct Operation {
    /// Its action.
    pub kind: OperationKind,
    /// Its needs.
    pub needs: Box<[Need]>,
    /// The arrays that it, or an operation within it, may write.
    pub writes: Box<[VariablePlace]>,
    /// Its position in the script.
    pub span: Span,
}

/// The action of an operation.
#[derive(Debug)]
pub enum OperationKind {
    /// Gives a variable a value.
    Set {
        /// The variable.
        target: VariablePlace,
        /// The value.
        value: Formula,
    },
    /// Gives a member of an array a value: `A[i][j] = v`.
    Store {
        /// The array.
        array: VariablePlace,
        /// The indices, the outermost first.
        indices: Vec<Formula>,
        /// The value; one that is not there yet may come later.
        value: Operand,
    },
    /// Adds a member to an array or bag, or to one within it.
    Append {
        /// The array.
        array: VariablePlace,
        /// The indices of the one within, the outermost first.
        indices: Vec<Formula>,
        /// The value.
        value: Operand,
    },
    /// Copies a member of an array into a variable, as soon as it is there.
    Load {
        /// The variable.
        target: VariablePlace,
        /// The array.
        array: VariablePlace,
        /// The index.
        index: Formula,
    },
    /// Makes a variable stand for a field of a struct.
    LoadField {
        /// The variable.
        target: VariablePlace,
        /// The struct.
        from: VariablePlace,
        /// The number of the field.
        field: u32,
    },
    /// Gives a field of a struct a value.
    SetField {
        /// The struct.
        target: VariablePlace,
        /// The fields on the way to it, the outermost first.
        path: Vec<u32>,
        /// The value.
        value: Operand,
    },
    /// Gives an array the members of another one.
    CopyArray {
        /// The array.
        target: VariablePlace,
        /// The other one.
        from: Operand,
    },
    /// Makes an array of values.
    FillArray {
        /// The array.
        target: VariablePlace,
        /// The indices and values; without indices they are 0, 1, ...
        members: Vec<(Option<Formula>, Operand)>,
    },
    /// Makes an array of a range of numbers.
    FillRange {
        /// The array.
        target: VariablePlace,
        /// The range.
        range: RangeFormula,
    },
    /// Gives a file its path.
    MapFile {
        /// The file.
        target: VariablePlace,
        /// The path.
        path: Formula,
    },
    /// Makes a file another one, or a copy of it if it has a path of its own.
    SetFile {
        /// The file.
        target: VariablePlace,
        /// The other one.
        from: Operand,
    },
    /// Calls a function of the script.
    Call {
        /// The function.
        function: FunctionId,
        /// Its inputs.
        inputs: Vec<Operand>,
        /// The variables of its outputs.
        outputs: Vec<VariablePlace>,
        /// The priority and location of its task, if it runs a program.
        placing: CallPlacing,
    },
    /// Runs the program of an app function, in the frame of a call.
    RunApp(FunctionId),
    /// Calls a function of the library that does something.
    CallEffect {
        /// The function.
        effect: crate::library::Effect,
        /// Its inputs.
        inputs: Vec<Operand>,
        /// The variables of its outputs.
        outputs: Vec<VariablePlace>,
    },
    /// Chooses between operations.
    If {
        /// The condition.
        condition: Formula,
        /// The operations if it holds.
        then: Operations,
        /// The operations otherwise.
        otherwise: Operations,
    },
    /// Chooses operations by a number.
    Switch {
        /// The number.
        value: Formula,
        /// The cases.
        cases: Vec<(i64, Operations)>,
        /// The operations if no case has the number.
        default: Operations,
    },
    /// Runs operations: those of a `wait`.
    Body(Operations),
    /// Runs operations for each member of an array, or each number of a range.
    Foreach {
        /// The members.
        over: ForeachSource,
        /// The frame of an iteration: slot 0 is the value, slot 1 the index.
        layout: LayoutId,
        /// The body.
        body: Operations,
    },
    /// Begins a `for`: links the first values and tests the condition in a frame of their own.
    For {
        /// The loop.
        loop_: Rc<ForLoop>,
        /// The first values of its variables.
        first: Vec<VariablePlace>,
    },
    /// Tests the condition of a `for` in the frame of an iteration, and runs the body if it holds.
    ForTest {
        /// The loop.
        loop_: Rc<ForLoop>,
        /// The condition.
        condition: Formula,
    },
    /// Goes on with an `iterate`, unless its condition holds.
    IterateNext {
        /// The frame of an iteration: slot 0 is the variable.
        layout: LayoutId,
        /// The body, this operation as the last one.
        body: Rc<RefCell<Operations>>,
        /// The condition.
        until: Formula,
    },
    /// Begins an `iterate`.
    Iterate {
        /// The frame of an iteration.
        layout: LayoutId,
        /// The body, with [`OperationKind::IterateNext`] as the last operation.
        body: Operations,
    },
}

/// A `for` loop.
#[derive(Debug)]
pub struct ForLoop {
    /// The frame of an iteration: its variables are the first slots.
    pub layout: LayoutId,
    /// The first operations of an iteration; the last one is [`OperationKind::ForTest`].
    pub before: RefCell<Operations>,
    /// The body, and what makes the next values.
    pub body: RefCell<Operations>,
    /// The variables that hold the next values, in the frame of an iteration.
    pub next: RefCell<Vec<VariablePlace>>,
}

/// The members that a `foreach` goes over.
#[derive(Debug)]
pub enum ForeachSource {
    /// Those of an array.
    Array(VariablePlace),
    /// Numbers.
    Range(RangeFormula),
}

/// A range of numbers, with its end.
#[derive(Debug)]
pub struct RangeFormula {
    /// The first number.
    pub start: Formula,
    /// The last number.
    pub end: Formula,
    /// The distance.
    pub step: Formula,
    /// True if these are numbers with a point.
    pub is_float: bool,
}

/// Priority and location of a task.
#[derive(Debug, Default)]
pub struct CallPlacing {
    /// The priority.
    pub priority: Option<Formula>,
    /// The location.
    pub location: Option<Formula>,
    /// True if the location is a wish (`@soft_location`), whatever it says itself.
    pub is_soft: bool,
}

/// An input of an operation.
#[derive(Debug)]
pub enum Operand {
    /// A variable, whose value may come later.
    Variable(VariablePlace),
    /// A value that is computed.
    Formula(Formula),
}

/// A computation without effects.
#[derive(Debug)]
pub enum Formula {
    /// A value.
    Constant(SwiftValue),
    /// The value of a variable.
    Variable(VariablePlace),
    /// A whole number with a point.
    ToFloat(Box<Formula>),
    /// The negative of a whole number, or of another one.
    Negate(Box<Formula>, bool),
    /// The opposite of a condition.
    Not(Box<Formula>),
    /// An operation of whole numbers.
    Int(Arithmetic, Box<(Formula, Formula)>),
    /// An operation of numbers with a point.
    Float(Arithmetic, Box<(Formula, Formula)>),
    /// A comparison.
    Compare(ComparisonOperation, Box<(Formula, Formula)>),
    /// Both, or one of two conditions (true for `&&`).
    Both(bool, Box<(Formula, Formula)>),
    /// A function of the library.
    Call(PureFunction, Vec<Formula>),
}

/// An operation of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    /// Of whole numbers: rounded down.
    Divide,
    /// Has the sign of the divisor.
    Modulo,
    Power,
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComparisonOperation {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// A function of a script.
#[derive(Debug)]
pub struct Function {
    /// Its name.
    pub name: Arc<str>,
    /// The position of its definition.
    pub span: Span,
    /// The frame of a call: outputs first, then inputs.
    pub layout: LayoutId,
    /// The number of its outputs.
    pub outputs: u32,
    /// The body.
    pub body: FunctionBody,
}

/// The body of a function.
#[derive(Debug)]
pub enum FunctionBody {
    /// Operations.
    Operations(Operations),
    /// A program.
    App(AppBody),
}

/// A program that a function runs, in the frame of a call.
#[derive(Debug)]
pub struct AppBody {
    /// Operations that compute values of parameters; the last one is [`OperationKind::RunApp`].
    pub operations: Operations,
    /// Its declaration.
    pub app: AppId,
    /// The values of its parameters.
    pub params: Vec<Formula>,
    /// The slot of the priority; that of the location is the next.
    pub placing: u32,
}

/// A checked script.
#[derive(Debug)]
pub struct Program {
    /// The types.
    pub types: TypeTable,
    /// The apps, [`AppId::COPY`] first.
    pub apps: Vec<AppDeclaration>,
    /// The functions.
    pub functions: Vec<Function>,
    /// The layouts of frames.
    pub layouts: Vec<FrameLayout>,
    /// The operations.
    pub operations: Vec<Operation>,
    /// The frame of the script itself.
    pub layout: LayoutId,
    /// The operations of the script itself.
    pub main: Operations,
}
