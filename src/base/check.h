// TARE_CHECK stops the process when an invariant of our own code is broken. It is kept in release
// builds and must never be reachable by outside input: a request, file or configuration that can
// trigger one is a bug (return a Result instead). TARE_DCHECK is for hot paths, debug builds only.
#pragma once

namespace tare {
[[noreturn]] void CheckFailed(const char* expression, const char* file, int line);
}  // namespace tare

#define TARE_CHECK(expression) \
  (static_cast<bool>(expression) ? void(0) : ::tare::CheckFailed(#expression, __FILE__, __LINE__))

#ifdef NDEBUG
#define TARE_DCHECK(expression) void(0)
#else
#define TARE_DCHECK(expression) TARE_CHECK(expression)
#endif
