// An incremental HTTP/1.1 response parser: bytes in, as they come; head, body pieces and the end
// out. It never copies body bytes and holds at most one unfinished line, so a connection that waits
// costs a few hundred bytes.
//
// Bodies: chunked, Content-Length, and until the connection closes. Interim (1xx) responses are
// skipped. Limits guard against a hostile server: the head and the trailers may have
// kMaxHeadBytes each, a chunk-size line kMaxLineBytes.
//
// Invariants: however the bytes are split over calls, the concatenated events are the same; after
// an error every further call fails with the same error. Thread safety: none. Source: RFC 9112
// (sections 4, 5, 6, 7); lines may end in a bare LF (2.2).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http_message.h"

namespace tare::net {

struct HttpResponseHead {
  int status = 0;
  int minor_version = 1;  // HTTP/1.x
  std::string reason;
  HttpHeaders headers;  // names as sent
};

class HttpResponseSink {
 public:
  virtual ~HttpResponseSink() = default;
  virtual void OnHead(const HttpResponseHead& head) = 0;
  virtual void OnBody(std::string_view piece) = 0;  // points into the bytes that were fed
};

class HttpResponseParser {
 public:
  static constexpr std::size_t kMaxHeadBytes = 64 << 10;
  static constexpr std::size_t kMaxLineBytes = 4 << 10;

  // Ready for the next response. `head_only`: the answer to a HEAD request, which has no body.
  void Reset(bool head_only = false);

  // Returns how many of the bytes belong to this response: all of them, unless it completed.
  Result<std::size_t> Feed(std::string_view bytes, HttpResponseSink& sink);

  // The peer closed its side. Fine when the response was complete or its body ends with the
  // connection; otherwise an error that says what was missing.
  Status Finish();

  bool complete() const { return state_ == State::kComplete; }
  // Nothing of a response has been seen since Reset.
  bool untouched() const { return untouched_; }
  // After completion: the connection may carry another request.
  bool keep_alive() const { return keep_alive_; }

 private:
  enum class State {
    kStatusLine,
    kHeaderLine,
    kLengthBody,
    kChunkSize,
    kChunkData,
    kChunkEnd,
    kTrailer,
    kCloseBody,
    kComplete,
    kBroken,
  };

  Status OnLine(std::string_view line, HttpResponseSink& sink);
  Status OnStatusLine(std::string_view line);
  Status OnHeaderLine(std::string_view line);
  Status OnHeadEnd(HttpResponseSink& sink);
  Status OnChunkSize(std::string_view line);

  State state_ = State::kStatusLine;
  bool head_only_ = false;
  bool untouched_ = true;
  bool keep_alive_ = true;
  std::string line_;             // the beginning of a line whose end has not come yet
  std::size_t head_bytes_ = 0;   // of the head or the trailers so far
  std::uint64_t body_left_ = 0;  // bytes of the body or the chunk still to come
  HttpResponseHead head_;
  Error error_;
};

}  // namespace tare::net
