#include "net/http_response_parser.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/text.h"

namespace tare::net {
namespace {

// RFC 9110 5.6.2: the characters of a header name.
bool IsTokenChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool ListHas(std::string_view list, std::string_view word) {
  for (const std::string_view item : Split(list, ',')) {
    if (EqualsIgnoreCase(Trim(item), word)) return true;
  }
  return false;
}

std::optional<std::uint64_t> ParseDecimal(std::string_view text) {
  if (text.empty() || text.size() > 18) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

// What a message may quote of bytes that came from outside.
std::string Quoted(std::string_view bytes) {
  std::string text;
  for (const char c : bytes.substr(0, 40)) text += c >= ' ' && c < 0x7f ? c : '?';
  return text;
}

}  // namespace

void HttpResponseParser::Reset(bool head_only) {
  state_ = State::kStatusLine;
  head_only_ = head_only;
  untouched_ = true;
  keep_alive_ = true;
  line_.clear();
  head_bytes_ = 0;
  body_left_ = 0;
  head_ = {};
  error_ = {};
}

Result<std::size_t> HttpResponseParser::Feed(std::string_view bytes, HttpResponseSink& sink) {
  std::size_t at = 0;
  if (!bytes.empty()) untouched_ = false;
  while (at < bytes.size()) {
    switch (state_) {
      case State::kComplete:
        return at;
      case State::kBroken:
        return tl::unexpected(error_);
      case State::kCloseBody:
        sink.OnBody(bytes.substr(at));
        at = bytes.size();
        break;
      case State::kLengthBody:
      case State::kChunkData: {
        const std::size_t size =
            static_cast<std::size_t>(std::min<std::uint64_t>(body_left_, bytes.size() - at));
        sink.OnBody(bytes.substr(at, size));
        at += size;
        body_left_ -= size;
        if (body_left_ == 0) {
          state_ = state_ == State::kChunkData ? State::kChunkEnd : State::kComplete;
        }
        break;
      }
      default: {  // the states that read lines
        const std::string_view rest = bytes.substr(at);
        const void* newline = std::memchr(rest.data(), '\n', rest.size());
        const std::size_t size =
            newline == nullptr
                ? rest.size()
                : static_cast<std::size_t>(static_cast<const char*>(newline) - rest.data()) + 1;
        const bool in_head = state_ == State::kStatusLine || state_ == State::kHeaderLine ||
                             state_ == State::kTrailer;
        if (in_head) head_bytes_ += size;
        Status status;
        if (head_bytes_ > kMaxHeadBytes || (!in_head && line_.size() + size > kMaxLineBytes)) {
          status = Fail(ErrorKind::kCorrupt, "HTTP response: {} longer than {} bytes",
                        in_head ? "its headers are" : "a chunk-size line is",
                        in_head ? kMaxHeadBytes : kMaxLineBytes);
        } else if (newline == nullptr) {
          line_.append(rest);
        } else {
          std::string_view line = rest.substr(0, size - 1);
          if (!line_.empty()) {
            line_.append(line);
            line = line_;
          }
          if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
          status = OnLine(line, sink);
          line_.clear();
        }
        at += size;
        if (!status) {
          state_ = State::kBroken;
          error_ = status.error();
          return tl::unexpected(error_);
        }
      }
    }
  }
  if (state_ == State::kBroken) return tl::unexpected(error_);
  return at;
}

Status HttpResponseParser::OnLine(std::string_view line, HttpResponseSink& sink) {
  switch (state_) {
    case State::kStatusLine:
      if (line.empty()) return {};  // RFC 9112 2.2: empty lines before a message are ignored
      return OnStatusLine(line);
    case State::kHeaderLine:
      return line.empty() ? OnHeadEnd(sink) : OnHeaderLine(line);
    case State::kChunkSize:
      return OnChunkSize(line);
    case State::kChunkEnd:
      if (!line.empty()) {
        return Fail(ErrorKind::kCorrupt, "HTTP response: a chunk is longer than its size says");
      }
      state_ = State::kChunkSize;
      return {};
    case State::kTrailer:
      if (line.empty()) state_ = State::kComplete;
      return {};
    default:
      return {};
  }
}

Status HttpResponseParser::OnStatusLine(std::string_view line) {
  // "HTTP/1.1 200 OK"; the reason may be missing.
  const bool well_formed = line.size() >= 12 && line.substr(0, 7) == "HTTP/1." &&
                           (line[7] == '0' || line[7] == '1') && line[8] == ' ' &&
                           (line.size() == 12 || line[12] == ' ');
  const std::optional<std::uint64_t> status =
      well_formed ? ParseDecimal(line.substr(9, 3)) : std::nullopt;
  if (!status || *status < 100) {
    return Fail(ErrorKind::kCorrupt, "not an HTTP/1.1 response: it begins '{}'", Quoted(line));
  }
  head_.minor_version = line[7] - '0';
  head_.status = static_cast<int>(*status);
  head_.reason = std::string(line.size() > 13 ? line.substr(13) : std::string_view());
  state_ = State::kHeaderLine;
  return {};
}

Status HttpResponseParser::OnHeaderLine(std::string_view line) {
  if (line.front() == ' ' || line.front() == '\t') {
    // RFC 9112 5.2: a folded line continues the value before it.
    if (head_.headers.empty()) {
      return Fail(ErrorKind::kCorrupt, "HTTP response: its first header line starts with a blank");
    }
    head_.headers.back().value += " ";
    head_.headers.back().value += Trim(line);
    return {};
  }
  const std::size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  if (colon == std::string_view::npos || name.empty() ||
      !std::all_of(name.begin(), name.end(), IsTokenChar)) {
    return Fail(ErrorKind::kCorrupt, "HTTP response: '{}' is not a header line", Quoted(line));
  }
  head_.headers.push_back({std::string(name), std::string(Trim(line.substr(colon + 1)))});
  return {};
}

Status HttpResponseParser::OnHeadEnd(HttpResponseSink& sink) {
  if (head_.status == 101) {
    return Fail(ErrorKind::kUnsupported, "HTTP response: the server switches protocols unasked");
  }
  if (head_.status < 200) {  // interim: the real one follows
    head_ = {};
    state_ = State::kStatusLine;
    return {};
  }
  std::optional<std::uint64_t> length;
  bool chunked = false;
  bool close = head_.minor_version == 0;
  for (const auto& [name, value] : head_.headers) {
    if (EqualsIgnoreCase(name, "content-length")) {
      for (const std::string_view item : Split(value, ',')) {
        const std::optional<std::uint64_t> one = ParseDecimal(Trim(item));
        if (!one || (length && *length != *one)) {
          return Fail(ErrorKind::kCorrupt, "HTTP response: '{}' is no usable Content-Length",
                      Quoted(value));
        }
        length = one;
      }
    } else if (EqualsIgnoreCase(name, "transfer-encoding")) {
      if (chunked || !EqualsIgnoreCase(value, "chunked")) {
        return Fail(ErrorKind::kUnsupported, "HTTP response: transfer encoding '{}' was not asked",
                    Quoted(value));
      }
      chunked = true;
    } else if (EqualsIgnoreCase(name, "connection")) {
      if (ListHas(value, "close")) close = true;
      if (head_.minor_version == 0 && ListHas(value, "keep-alive")) close = false;
    }
  }
  keep_alive_ = !close;
  head_bytes_ = 0;
  sink.OnHead(head_);
  if (head_only_ || head_.status == 204 || head_.status == 304) {
    state_ = State::kComplete;
  } else if (chunked) {
    // RFC 9112 6.3: with both, the length is not to be believed, nor the connection reused.
    if (length) keep_alive_ = false;
    state_ = State::kChunkSize;
  } else if (length) {
    body_left_ = *length;
    state_ = *length == 0 ? State::kComplete : State::kLengthBody;
  } else {
    keep_alive_ = false;
    state_ = State::kCloseBody;
  }
  return {};
}

Status HttpResponseParser::OnChunkSize(std::string_view line) {
  std::string_view digits = Trim(line.substr(0, line.find(';')));  // extensions are ignored
  const auto refuse = [&] {
    return Fail(ErrorKind::kCorrupt, "HTTP response: '{}' is not a chunk size", Quoted(line));
  };
  if (digits.empty() || digits.size() > 15) return refuse();
  std::uint64_t size = 0;
  for (const char c : digits) {
    const std::size_t digit = std::string_view("0123456789abcdefABCDEF").find(c);
    if (digit == std::string_view::npos) return refuse();
    size = size * 16 + (digit < 16 ? digit : digit - 6);
  }
  body_left_ = size;
  state_ = size == 0 ? State::kTrailer : State::kChunkData;
  return {};
}

Status HttpResponseParser::Finish() {
  switch (state_) {
    case State::kComplete:
      return {};
    case State::kCloseBody:
      state_ = State::kComplete;
      return {};
    case State::kBroken:
      return tl::unexpected(error_);
    case State::kStatusLine:
    case State::kHeaderLine:
      return Fail(ErrorKind::kNetwork, "the connection closed before the response headers ended");
    case State::kLengthBody:
      return Fail(ErrorKind::kNetwork, "the connection closed {} bytes before the body's end",
                  body_left_);
    default:
      return Fail(ErrorKind::kNetwork, "the connection closed before the last chunk");
  }
}

}  // namespace tare::net
