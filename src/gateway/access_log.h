// The access log: one JSON object a line for every answered request.
//
// Writing never waits for the disk: lines are gathered in memory and written by a thread of the
// log's own, several at a time. When the disk cannot follow, lines are dropped and counted.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "api/chat.h"
#include "base/result.h"
#include "base/types.h"

namespace tare::gateway {

// What is known of a request at its end. Empty strings and zeros are left out of the line.
struct AccessRecord {
  std::string id;
  std::string peer;
  std::string method;
  std::string path;  // the endpoint's, without query
  std::string tenant;
  std::string key;    // its name, never the key
  std::string model;  // as asked for
  std::string answered_by;
  std::string error;  // code, or the kind
  bool batch = false;
  bool stream = false;
  int status = 0;  // 499: the client left
  Nanos duration{};
  Nanos first_token{};
  api::Usage usage;
};

class AccessLog {
 public:
  // "-" is stderr; a file is appended to.
  static Result<std::shared_ptr<AccessLog>> Open(const std::string& path);
  ~AccessLog();  // writes what is left

  void Write(const AccessRecord& record, std::chrono::system_clock::time_point now);
  // Opens the file anew, after it was moved away (log rotation).
  Status Reopen();
  std::uint64_t dropped() const;

 private:
  struct Impl;
  explicit AccessLog(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// The line of a record, with its line break.
std::string FormatAccess(const AccessRecord& record, std::chrono::system_clock::time_point now);

}  // namespace tare::gateway
