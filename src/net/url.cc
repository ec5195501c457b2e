#include "net/url.h"

#include <charconv>

namespace tare::net {
namespace {

constexpr std::uint16_t kHttpPort = 80;
constexpr std::uint16_t kHttpsPort = 443;

bool StartsWithNoCase(std::string_view text, std::string_view lower_prefix) {
  if (text.size() < lower_prefix.size()) return false;
  for (std::size_t i = 0; i < lower_prefix.size(); ++i) {
    const char c = text[i];
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (lower != lower_prefix[i]) return false;
  }
  return true;
}

}  // namespace

std::string Url::Authority() const {
  std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  if (port == (tls ? kHttpsPort : kHttpPort)) return name;
  return fmt::format("{}:{}", name, port);
}

std::string Url::Origin() const { return (tls ? "https://" : "http://") + Authority(); }

Url Url::WithPath(std::string_view path) const {
  Url other = *this;
  std::string base = target.substr(0, target.find('?'));
  while (!base.empty() && base.back() == '/') base.pop_back();
  other.target = base + std::string(path);
  if (other.target.empty()) other.target = "/";
  return other;
}

Result<Url> ParseUrl(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return Fail(ErrorKind::kInvalidArgument,
                "'{}' is not a usable URL: {}; write it like http://127.0.0.1:8000", text, why);
  };
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f) {
      return refuse("it holds a blank or control character");
    }
  }
  Url url;
  std::string_view rest = text;
  if (StartsWithNoCase(rest, "http://")) {
    rest.remove_prefix(7);
  } else if (StartsWithNoCase(rest, "https://")) {
    rest.remove_prefix(8);
    url.tls = true;
    url.port = kHttpsPort;
  } else if (rest.find("://") != std::string_view::npos) {
    return refuse("only http and https are spoken");
  }
  if (rest.find('#') != std::string_view::npos) return refuse("it has a fragment ('#')");
  const std::size_t path_at = rest.find_first_of("/?");
  std::string_view authority = rest.substr(0, path_at);
  if (path_at != std::string_view::npos) {
    url.target = std::string(rest.substr(path_at));
    if (url.target.front() == '?') url.target.insert(0, "/");
  }
  if (authority.find('@') != std::string_view::npos) {
    return refuse("it holds a user name; give keys with --api-key-file");
  }
  std::string_view port_text;
  bool has_port = false;
  if (!authority.empty() && authority.front() == '[') {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) return refuse("the '[' of the address is not closed");
    url.host = std::string(authority.substr(1, close - 1));
    authority.remove_prefix(close + 1);
    if (!authority.empty()) {
      if (authority.front() != ':') return refuse("something other than a port follows ']'");
      has_port = true;
      port_text = authority.substr(1);
    }
  } else {
    const std::size_t colon = authority.find(':');
    url.host = std::string(authority.substr(0, colon));
    if (colon != std::string_view::npos) {
      has_port = true;
      port_text = authority.substr(colon + 1);
    }
  }
  if (url.host.empty()) return refuse("it names no host");
  if (has_port) {
    const auto [end, code] =
        std::from_chars(port_text.data(), port_text.data() + port_text.size(), url.port);
    if (code != std::errc() || end != port_text.data() + port_text.size() || url.port == 0) {
      return refuse("its port is not a number from 1 to 65535");
    }
  }
  return url;
}

}  // namespace tare::net
