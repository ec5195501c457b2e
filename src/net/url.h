// The part of URLs an HTTP client needs: scheme, host, port and path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tare::net {

struct Url {
  bool tls = false;          // https
  std::string host;          // name or address, an IPv6 one without its brackets
  std::uint16_t port = 80;   // 443 for https when the text names none
  std::string target = "/";  // path and query; never empty

  // "host" or "host:port" as the Host header wants it.
  std::string Authority() const;
  // "http://host:port", without the target.
  std::string Origin() const;
  // The same server, another path: appends `path` ("/v1/models") to this target's path.
  Url WithPath(std::string_view path) const;
};

// Accepts http:// and https:// URLs; a text without scheme is taken as http. User names, fragments
// and control characters are refused.
Result<Url> ParseUrl(std::string_view text);

}  // namespace tare::net
