// Result<T> and Error: how everything that comes from outside (files, network, configuration,
// requests) reports failure. An Error says three things in one sentence or two: the thing, the
// reason, the remedy. Exceptions never cross a room's border; broken invariants use TARE_CHECK.
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace tare {

enum class ErrorKind {
  kInvalidArgument,    // the caller's words are wrong: usage, request, plan
  kNotFound,           // the named thing does not exist
  kCorrupt,            // a file or message breaks its format
  kUnsupported,        // well-formed, but not something we can do
  kResourceExhausted,  // memory, disk, pages, quota
  kUnavailable,        // busy, draining, not ready: may work later
  kDeadlineExceeded,   // a time limit passed
  kCancelled,          // the caller went away
  kIo,                 // the operating system refused a file operation
  kNetwork,            // connection refused, reset, closed early
  kInternal,           // our fault
};

// The kind's name in lower_snake_case ("invalid_argument"): stable, used in metrics and JSON.
const char* ToString(ErrorKind kind);

struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
  std::string param;  // name of the offending parameter or key; empty when there is none
  std::string code;   // reason programs act on ("context_length_exceeded"); empty: just the kind
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// Makes the error branch of a Result: return Fail(ErrorKind::kIo, "cannot open '{}': {}", p, why);
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> Fail(ErrorKind kind, fmt::format_string<Args...> format,
                                         Args&&... args) {
  return tl::unexpected<Error>(
      Error{kind, fmt::format(format, std::forward<Args>(args)...), std::string(), std::string()});
}

// As Fail, naming the request parameter or configuration key at fault.
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> FailParam(std::string param, fmt::format_string<Args...> format,
                                              Args&&... args) {
  return tl::unexpected<Error>(Error{ErrorKind::kInvalidArgument,
                                     fmt::format(format, std::forward<Args>(args)...),
                                     std::move(param), std::string()});
}

// Prefixes an error with where it happened: Context(result.error(), "reading plan '{}'", path).
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> Context(Error error, fmt::format_string<Args...> format,
                                            Args&&... args) {
  error.message = fmt::format(format, std::forward<Args>(args)...) + ": " + error.message;
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace tare

#define TARE_CONCAT_INNER(a, b) a##b
#define TARE_CONCAT(a, b) TARE_CONCAT_INNER(a, b)

// TARE_TRY(auto file, OpenFile(path)); binds the value or returns the error to the caller.
#define TARE_TRY(declaration, expression) \
  TARE_TRY_IMPL(TARE_CONCAT(tare_result_, __COUNTER__), declaration, expression)
#define TARE_TRY_IMPL(temporary, declaration, expression)                \
  auto temporary = (expression);                                         \
  if (!temporary) return ::tl::unexpected(std::move(temporary).error()); \
  declaration = *std::move(temporary)

// TARE_RETURN_IF_ERROR(WriteAll(fd, bytes)); for a Status.
#define TARE_RETURN_IF_ERROR(expression)                                         \
  do {                                                                           \
    auto tare_status_ = (expression);                                            \
    if (!tare_status_) return ::tl::unexpected(std::move(tare_status_).error()); \
  } while (false)
