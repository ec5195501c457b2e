// The runs kept on this machine: one SQLite file, runs.db, in the user's data directory.
//
// A run is found by its id, by a beginning of its id that only one run has, by its name (the
// newest run of that name), or as "latest". Several processes may use the file at once (WAL,
// busy timeout); documents are stored whole, as zstd-compressed JSON of schema tare.run/1, so a
// record reads back exactly as it was written.
//
// Ownership: a RunStore owns its connection. Thread safety: one thread at a time.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/run_record.h"

namespace tare::store {

struct RunListing {  // what `tare runs list` shows without reading the documents
  std::string id, tag, name, started_at, url, model;
  bool valid = true;
  std::uint64_t ok = 0, failed = 0;
  double requests_per_s = 0, output_tokens_per_s = 0;
};

// "20261130-105342-417-7f3a": the start in UTC to the millisecond, and four random hex digits.
std::string NewRunId(std::chrono::system_clock::time_point started);

class RunStore {
 public:
  // The store in UserDataDir().
  static Result<RunStore> OpenDefault();
  static Result<RunStore> Open(const std::filesystem::path& file);

  RunStore(RunStore&&) noexcept;
  RunStore& operator=(RunStore&&) noexcept;
  ~RunStore();

  // Keeps the record and returns its id; an empty id (and started_at) is filled in.
  Result<std::string> Save(RunRecord record);
  // Newest first. `limit` 0: all.
  Result<std::vector<RunListing>> List(std::size_t limit = 0) const;
  Result<RunRecord> Load(std::string_view id_or_name) const;
  // Returns the id of the run it removed. Takes an id or a beginning of one, never a name: a name
  // may stand for several runs.
  Result<std::string> Delete(std::string_view id);

 private:
  struct Connection;
  explicit RunStore(std::unique_ptr<Connection> connection);
  Result<std::string> ResolveId(std::string_view id_or_name, bool names) const;

  std::unique_ptr<Connection> connection_;
};

}  // namespace tare::store
