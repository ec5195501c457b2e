// The parts of HTTP/1.1 that handlers see: requests as values, header lists, status phrases.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace tare::net {

struct HttpHeader {
  std::string name;
  std::string value;
};
using HttpHeaders = std::vector<HttpHeader>;

// Case-insensitive comparison of ASCII, as header names need it.
bool EqualsIgnoreCase(std::string_view a, std::string_view b);

// The first header of that name, or nullptr.
const std::string* FindHeader(const HttpHeaders& headers, std::string_view name);

struct HttpRequest {
  std::string method;  // upper case as sent
  std::string target;  // path and query as sent, "/v1/models?limit=1"
  HttpHeaders headers;
  std::string body;
  std::string peer;  // client address, "127.0.0.1"
  Nanos received{};  // monotonic: when the last byte of the request had arrived

  std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
  const std::string* Header(std::string_view name) const { return FindHeader(headers, name); }
};

// "Not Found" for 404; "Unknown" for numbers outside the registry's common part.
std::string_view StatusPhrase(int status);

}  // namespace tare::net
