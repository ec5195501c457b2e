//! What every entry of the C ABI shares: borrowed slices in, owned buffers out, status codes, and
//! the guard that keeps a panic on this side of the border.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// Bytes owned by this library; the caller gives them back with `tb_buffer_free`.
#[repr(C)]
pub struct Buffer {
    data: *mut u8,
    size: usize,
    capacity: usize,
}

impl Buffer {
    pub fn from(bytes: Vec<u8>) -> Self {
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        Self { data: bytes.as_mut_ptr(), size: bytes.len(), capacity: bytes.capacity() }
    }
}

/// 32-bit numbers owned by this library; given back with `tb_numbers_free`.
#[repr(C)]
pub struct Numbers {
    data: *mut u32,
    size: usize,
    capacity: usize,
}

impl Numbers {
    pub fn from(numbers: Vec<u32>) -> Self {
        let mut numbers = std::mem::ManuallyDrop::new(numbers);
        Self { data: numbers.as_mut_ptr(), size: numbers.len(), capacity: numbers.capacity() }
    }
}

/// # Safety
/// `buffer` was filled by this library and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_buffer_free(buffer: Buffer) {
    if !buffer.data.is_null() {
        drop(unsafe { Vec::from_raw_parts(buffer.data, buffer.size, buffer.capacity) });
    }
}

/// # Safety
/// `numbers` was filled by this library and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tb_numbers_free(numbers: Numbers) {
    if !numbers.data.is_null() {
        drop(unsafe { Vec::from_raw_parts(numbers.data, numbers.size, numbers.capacity) });
    }
}

/// Bytes the caller owns, valid during one call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slice {
    data: *const u8,
    size: usize,
}

impl Slice {
    /// # Safety
    /// The caller of the C function promised `size` readable bytes at `data`.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.data.is_null() || self.size == 0 {
            &[]
        } else {
            unsafe { std::slice::from_raw_parts(self.data, self.size) }
        }
    }
}

/// Why a call failed; the numbers are part of the ABI.
#[derive(Clone, Copy)]
pub enum Fault {
    /// The input (file, text, template data) is at fault.
    Input = 1,
    /// The template refused by `raise_exception`.
    Raised = 2,
    /// A panic inside a crate: an input its authors did not foresee, or a bug.
    Panic = 3,
}

pub struct Failure {
    pub fault: Fault,
    pub message: String,
}

impl Failure {
    pub fn input(message: impl std::fmt::Display) -> Self {
        Self { fault: Fault::Input, message: message.to_string() }
    }
}

pub type Outcome<T> = Result<T, Failure>;

thread_local! {
    static PANIC_MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The default hook prints to stderr; a server's log is not the place for a crate's backtrace, so
/// the words are kept for the error message instead.
fn keep_panic_message() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        panic::set_hook(Box::new(|info| {
            PANIC_MESSAGE.with(|message| *message.borrow_mut() = info.to_string());
        }));
    });
}

/// Runs one entry: writes the result by `store` and returns 0, or writes the message into `error`
/// and returns the fault's number.
///
/// # Safety
/// `error` points to a buffer that may be overwritten.
pub unsafe fn enter<T>(
    error: *mut Buffer,
    body: impl FnOnce() -> Outcome<T>,
    store: impl FnOnce(T),
) -> i32 {
    keep_panic_message();
    let outcome = panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let message = PANIC_MESSAGE.with(|message| std::mem::take(&mut *message.borrow_mut()));
        Err(Failure { fault: Fault::Panic, message })
    });
    match outcome {
        Ok(value) => {
            store(value);
            0
        }
        Err(failure) => {
            unsafe { error.write(Buffer::from(failure.message.into_bytes())) };
            failure.fault as i32
        }
    }
}

/// Drops what a handle owns; a panicking destructor must not cross the border either.
pub fn discard<T>(handle: *mut T) {
    if !handle.is_null() {
        keep_panic_message();
        let owned = AssertUnwindSafe(handle);
        let _ = panic::catch_unwind(move || drop(unsafe { Box::from_raw(*owned) }));
    }
}
