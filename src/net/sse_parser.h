// An incremental parser of server-sent events: bytes in, as they come; events and comments out.
// Single-line events that arrive whole are handed out as views of the fed bytes, without a copy.
//
// Invariant: however the bytes are split over calls, the events are the same. An event unfinished
// when the stream ends is no event (mid_event() tells). Lines may end in LF, CR or CRLF.
// Thread safety: none. Source: WHATWG HTML, "Server-sent events", 9.2.5 and 9.2.6.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tare::net {

struct SseEvent {         // the views are good during OnEvent only
  std::string_view type;  // empty: "message"
  std::string_view data;  // the data lines, joined by LF
  std::string_view id;    // the last event id seen so far
};

class SseSink {
 public:
  virtual ~SseSink() = default;
  virtual void OnEvent(const SseEvent& event) = 0;
  virtual void OnComment(std::string_view text) { static_cast<void>(text); }  // keep-alives
};

class SseParser {
 public:
  static constexpr std::size_t kMaxEventBytes = std::size_t{16} << 20;

  // Fails, now and ever after, when one event grows past kMaxEventBytes.
  Status Feed(std::string_view bytes, SseSink& sink);
  // Bytes of an event have come whose end has not.
  bool mid_event() const;
  void Reset();

 private:
  void OnLine(std::string_view line, SseSink& sink);
  void OnField(std::string_view name, std::string_view value);
  void Dispatch(SseSink& sink);
  void KeepView();

  std::string line_;      // the beginning of a line whose end has not come yet
  bool skip_lf_ = false;  // the bytes before ended in CR: an LF belongs to it
  bool at_start_ = true;  // a byte order mark may come
  bool broken_ = false;
  bool has_data_ = false;
  bool data_is_view_ = false;
  std::string_view view_;  // the only data line so far, in the bytes being fed
  std::string data_;
  std::string type_;
  std::string id_;
};

}  // namespace tare::net
