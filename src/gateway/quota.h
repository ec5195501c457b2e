// Counts what tenants use and holds them to their limits: exact with any number of clients.
//
// A call reserves what it may take before it goes to an upstream: one request, its estimated tokens
// and their price. Reserving and checking are one step, so no two calls can share the last of a
// budget. At the end it settles: the estimate is replaced by what was used; a call that failed
// gives everything back. What is reserved counts as used.
//
// Minutes and months are those of the UTC clock. With a store, what a tenant has used is kept in it
// a little ahead (a hundredth of each limit), so that a call waits for the store only when that is
// used up: after a crash what was ahead counts as used, and a budget is never exceeded.
//
// With a pool (store/quota_pool.h) several gateways share the budgets: each leases parts of them,
// counts against its lease, and gives back within seconds what it does not need. When the pool
// cannot be reached, calls of tenants with limits beyond the lease are refused as unavailable, and
// the pool is left alone for a second at a time (kPoolPause).
//
// Thread safety: all methods may be called from any thread. No call waits for the pool but those
// that say so, also not while another does.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/types.h"
#include "gateway/access.h"
#include "store/quota_pool.h"
#include "store/quota_store.h"

namespace tare::gateway {

struct QuotaRequest {
  std::string tenant;
  std::string model;
  TenantLimits limits;
  TokenPrice price;
  std::int64_t prompt_tokens = 0;  // estimated
  std::int64_t answer_tokens = 0;  // the most it may have, or the usual
};

struct QuotaRefusal {
  Error error;
  Nanos retry_after{};  // until the window that is full ends
  std::string limit;    // "requests_per_minute", ..., or "store": the pool cannot be asked
};

struct RefusalCount {
  std::string tenant;
  std::string limit;  // as in QuotaRefusal
  std::uint64_t count = 0;
};

class QuotaLedger {
 public:
  using WallClock = std::function<std::chrono::system_clock::time_point()>;
  // How long a pool that could not be reached is left alone: a call waits for each try.
  static constexpr Nanos kPoolPause = std::chrono::seconds(1);

  struct SharedOptions {
    WallClock now;                                    // null: the system's clock
    const Clock* clock = nullptr;                     // for kPoolPause; null: a SteadyClock
    Nanos give_back_every = std::chrono::seconds(1);  // leases that were not used for this long
  };

  // Without a store nothing outlives the process. `now` null: the system's clock.
  static Result<std::shared_ptr<QuotaLedger>> Create(std::unique_ptr<store::QuotaStore> store,
                                                     WallClock now = nullptr);
  static Result<std::shared_ptr<QuotaLedger>> CreateShared(std::unique_ptr<store::QuotaPool> pool,
                                                           SharedOptions options);
  ~QuotaLedger();

  // A call's hold on its tenant's budget. Destroying it unsettled gives everything back.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept;
    Reservation& operator=(Reservation&& other) noexcept;
    ~Reservation();
    // The call ended with this use.
    void Settle(const api::Usage& usage);
    void Release();
    std::int64_t prompt_estimate() const { return request_.prompt_tokens; }

   private:
    friend class QuotaLedger;
    std::shared_ptr<QuotaLedger> ledger_;  // null: nothing is held
    QuotaRequest request_;
    std::int64_t minute_ = 0, month_ = 0;
    std::int64_t tokens_ = 0, nano_usd_ = 0;
  };

  using Held = tl::expected<Reservation, QuotaRefusal>;
  // Absent: the pool must be asked first, which Reserve does.
  std::optional<Held> TryReserve(const QuotaRequest& request);
  // May wait for the pool.
  Held Reserve(const QuotaRequest& request);

  // By month, tenant and model; with a pool, of this gateway since its start.
  std::vector<store::UsageRow> Usage() const;
  std::vector<store::QuotaRow> Quotas() const;
  // The same of all gateways; may wait for the pool.
  Result<std::vector<store::UsageRow>> TotalUsage() const;
  Result<std::vector<store::QuotaRow>> TotalQuotas() const;
  std::vector<RefusalCount> Refusals() const;
  // Writes to the store that failed; what they held is tried again with the next.
  std::uint64_t store_failures() const;

  struct Impl;

 private:
  std::optional<Held> Try(const QuotaRequest& request);
  Held Counted(const QuotaRequest& request, Held held);
  explicit QuotaLedger(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
  std::weak_ptr<QuotaLedger> self_;
};

// Year * 12 + month (from 0) of a time, UTC, and "2026-11" of that.
std::int64_t MonthOf(std::chrono::system_clock::time_point time);
std::string MonthName(std::int64_t month);

}  // namespace tare::gateway
