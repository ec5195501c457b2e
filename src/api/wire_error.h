// How failures look on the wire: an HTTP status and the OpenAI error object.
#pragma once

#include <string>

#include "base/result.h"

namespace tare::api {

// The HTTP status of an error's kind, or of its code where that says more (404 model_not_found).
int HttpStatus(const Error& error);

// {"error":{"message","type","param","code"}}; empty param and code are null.
std::string ErrorBody(const Error& error);

// The same for a status chosen elsewhere (for example by the HTTP server itself).
std::string ErrorBody(int status, const std::string& message);

// Codes clients know, for Error::code.
inline constexpr const char* kModelNotFound = "model_not_found";
inline constexpr const char* kContextLengthExceeded = "context_length_exceeded";
inline constexpr const char* kInvalidApiKey = "invalid_api_key";
inline constexpr const char* kModelNotAllowed = "model_not_allowed";  // 403
inline constexpr const char* kOperatorOnly = "operator_only";         // 403
inline constexpr const char* kRateLimitExceeded = "rate_limit_exceeded";
inline constexpr const char* kInsufficientQuota = "insufficient_quota";
inline constexpr const char* kOverloaded = "overloaded";  // 503, with Retry-After
inline constexpr const char* kStreamInterrupted = "stream_interrupted";

}  // namespace tare::api
