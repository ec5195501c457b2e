// Budgets that several gateways share: who holds them hands out parts.
//
// A gateway takes a lease of a tenant's budget before it lets calls use it, and takes more when it
// is used up; what leases hold counts as used, so that a budget is never exceeded, whatever dies.
// Leases get smaller as a budget runs out (an eighth of what is left), so that little lies idle
// with one gateway while another refuses.
//
// PostgresQuotaPool keeps them in two tables of a PostgreSQL database, tare_quotas and tare_usage,
// which it makes where they are missing.
//
// A call has a time limit as a whole, however many statements it takes, from when its connection is
// free: a database that hangs or is slow fails it, and what it may have granted meanwhile counts as
// used.
//
// Thread safety: all methods may be called from any thread. Take uses a connection of its own, so
// that it never waits for the others.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/quota_store.h"

namespace tare::store {

struct QuotaAmounts {
  std::int64_t requests = 0;  // of the minute
  std::int64_t tokens = 0;    // of the minute
  std::int64_t nano_usd = 0;  // of the month
};

struct LeaseRequest {
  std::string tenant;
  std::int64_t minute = 0;  // minutes since the Unix epoch
  std::int64_t month = 0;   // year * 12 + month from 0
  QuotaAmounts need;        // at least
  QuotaAmounts want;        // at best; not less than needed
  // Absent: no limit.
  std::optional<std::int64_t> limit_requests, limit_tokens, limit_nano_usd;
};

struct Lease {
  bool granted = false;
  QuotaAmounts amounts;  // what was granted
  QuotaRow taken;        // by all gateways together, after this
};

class QuotaPool {
 public:
  virtual ~QuotaPool() = default;
  // All of `need` or nothing.
  virtual Result<Lease> Take(const LeaseRequest& request) = 0;
  // Gives back what a lease of these windows held and nobody used. Of windows that are over it does
  // nothing.
  virtual Status GiveBack(const std::string& tenant, std::int64_t minute, std::int64_t month,
                          const QuotaAmounts& amounts) = 0;
  // Adds to what was used, by month, tenant and model.
  virtual Status AddUsage(std::span<const UsageRow> more) = 0;
  // Of all gateways.
  virtual Result<std::vector<UsageRow>> Usage() = 0;
  virtual Result<std::vector<QuotaRow>> Quotas() = 0;
};

// Whether a quota_store names a database rather than a file.
bool IsPostgresUrl(const std::string& text);

class PostgresQuotaPool final : public QuotaPool {
 public:
  // A gateway's calls wait for a lease, and must not wait long.
  static constexpr std::chrono::milliseconds kPatience{3000};

  // `url` as libpq takes it: postgresql://user@host/database?... A connection that breaks later is
  // made anew by the next call. `patience` is a call's time limit.
  static Result<std::unique_ptr<PostgresQuotaPool>> Open(
      const std::string& url, std::chrono::milliseconds patience = kPatience);
  ~PostgresQuotaPool() override;

  Result<Lease> Take(const LeaseRequest& request) override;
  Status GiveBack(const std::string& tenant, std::int64_t minute, std::int64_t month,
                  const QuotaAmounts& amounts) override;
  Status AddUsage(std::span<const UsageRow> more) override;
  Result<std::vector<UsageRow>> Usage() override;
  Result<std::vector<QuotaRow>> Quotas() override;

 private:
  class Connection;
  PostgresQuotaPool(const std::string& url, std::chrono::milliseconds patience);
  const std::unique_ptr<Connection> leases_, books_;
};

}  // namespace tare::store
