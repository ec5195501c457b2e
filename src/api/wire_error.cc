#include "api/wire_error.h"

#include "api/json_text.h"

namespace tare::api {

namespace {

const char* TypeOfStatus(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    case 504:
      return "timeout_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string Body(const std::string& message, const char* type, const std::string& param,
                 const std::string& code) {
  std::string out = R"({"error":{"message":)";
  AppendJsonString(out, message);
  out.append(R"(,"type":")").append(type).append(R"(","param":)");
  if (param.empty()) {
    out.append("null");
  } else {
    AppendJsonString(out, param);
  }
  out.append(R"(,"code":)");
  if (code.empty()) {
    out.append("null");
  } else {
    AppendJsonString(out, code);
  }
  out.append("}}");
  return out;
}

}  // namespace

int HttpStatus(const Error& error) {
  if (error.code == kInvalidApiKey) return 401;
  if (error.code == kModelNotAllowed || error.code == kOperatorOnly) return 403;
  if (error.code == kRateLimitExceeded || error.code == kInsufficientQuota) return 429;
  switch (error.kind) {
    case ErrorKind::kInvalidArgument:
    case ErrorKind::kCorrupt:
      return 400;
    case ErrorKind::kUnsupported:
      return 400;
    case ErrorKind::kNotFound:
      return 404;
    case ErrorKind::kResourceExhausted:
      return 503;
    case ErrorKind::kUnavailable:
      return 503;
    case ErrorKind::kDeadlineExceeded:
      return 504;
    case ErrorKind::kCancelled:
      return 499;
    case ErrorKind::kNetwork:
      return 502;
    case ErrorKind::kIo:
    case ErrorKind::kInternal:
      return 500;
  }
  return 500;
}

std::string ErrorBody(const Error& error) {
  return Body(error.message, TypeOfStatus(HttpStatus(error)), error.param, error.code);
}

std::string ErrorBody(int status, const std::string& message) {
  return Body(message, TypeOfStatus(status), "", "");
}

}  // namespace tare::api
