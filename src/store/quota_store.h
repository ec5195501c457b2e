// What tenants have used, kept across restarts: one SQLite file of the gateway.
//
// Two tables: `quotas`, what counts against each tenant's limits now (reservations of calls under
// way included, so that after a crash they count as spent: a budget is never exceeded), and
// `usage`, what was really used by month, tenant and model.
//
// A Save survives the death of the process at once (the kernel has it) and a power cut after the
// next Checkpoint; the file is never left half-written (WAL). Committing does not wait for the
// disk.
//
// Ownership: owns its connections. Thread safety: Save and the loads one thread at a time;
// Checkpoint may run beside them, on one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace tare::store {

struct QuotaRow {
  std::string tenant;
  std::int64_t minute = 0;  // minutes since the Unix epoch
  std::int64_t minute_requests = 0;
  std::int64_t minute_tokens = 0;
  std::int64_t month = 0;  // year * 12 + month from 0
  std::int64_t month_nano_usd = 0;
};

struct UsageRow {
  std::int64_t month = 0;
  std::string tenant;
  std::string model;
  std::int64_t requests = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt
  std::int64_t output_tokens = 0;
  std::int64_t nano_usd = 0;
};

class QuotaStore {
 public:
  // Refused while another process (or object) has the file open: kUnavailable.
  static Result<QuotaStore> Open(const std::filesystem::path& file);
  QuotaStore(QuotaStore&&) noexcept;
  QuotaStore& operator=(QuotaStore&&) noexcept;
  ~QuotaStore();

  Result<std::vector<QuotaRow>> Quotas() const;
  Result<std::vector<UsageRow>> Usage() const;
  // Replaces the rows of these keys, all or none.
  Status Save(std::span<const QuotaRow> quotas, std::span<const UsageRow> usage);
  // Moves what was committed into the main file and waits for the disk.
  Status Checkpoint();

 private:
  struct Connection;
  explicit QuotaStore(std::unique_ptr<Connection> connection);
  std::unique_ptr<Connection> connection_;
};

}  // namespace tare::store
