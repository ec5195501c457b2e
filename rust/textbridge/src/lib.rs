//! C ABI over the crates that handle text. include/textbridge.h is the contract; src/model wraps it
//! in RAII and Result. Handles are immutable after creation and may be shared between threads.

mod ffi;
mod guard;
mod messages;
mod pieces;
mod python;
mod ranks;
mod template;
mod tokenizer;
