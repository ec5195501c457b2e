#include "base/result.h"

namespace tare {

const char* ToString(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return "invalid_argument";
    case ErrorKind::kNotFound:
      return "not_found";
    case ErrorKind::kCorrupt:
      return "corrupt";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kResourceExhausted:
      return "resource_exhausted";
    case ErrorKind::kUnavailable:
      return "unavailable";
    case ErrorKind::kDeadlineExceeded:
      return "deadline_exceeded";
    case ErrorKind::kCancelled:
      return "cancelled";
    case ErrorKind::kIo:
      return "io";
    case ErrorKind::kNetwork:
      return "network";
    case ErrorKind::kInternal:
      return "internal";
  }
  return "internal";
}

}  // namespace tare
