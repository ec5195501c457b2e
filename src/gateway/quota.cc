#include "gateway/quota.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "api/wire_error.h"
#include "base/log.h"

namespace tare::gateway {

namespace {

using std::chrono::system_clock;

constexpr const char* kRequests = "requests_per_minute";
constexpr const char* kTokens = "tokens_per_minute";
constexpr const char* kMoney = "usd_per_month";
constexpr const char* kStore = "store";
// Usage is written this long after it changed, with all that changed meanwhile.
constexpr auto kWriteDelay = std::chrono::milliseconds(20);
// A crash may leave this share (one in a hundred) of a limit unused.
constexpr std::int64_t kLeadShare = 100;
constexpr auto kCheckpointEvery = std::chrono::seconds(5);
// Calls that need no lease may take what one brought before the call it was for.
constexpr int kLeaseTries = 8;

std::chrono::year_month_day Date(system_clock::time_point time) {
  return std::chrono::year_month_day(std::chrono::floor<std::chrono::days>(time));
}

std::int64_t MinuteOf(system_clock::time_point time) {
  return std::chrono::floor<std::chrono::minutes>(time.time_since_epoch()).count();
}

system_clock::time_point NextMonth(system_clock::time_point time) {
  const auto date = Date(time);
  const auto next = date.year() / date.month() / 1 + std::chrono::months(1);
  return std::chrono::sys_days(next);
}

double Usd(std::int64_t nano_usd) { return static_cast<double>(nano_usd) / 1e9; }

using UsageKey = std::tuple<std::int64_t, std::string, std::string>;  // month, tenant, model

struct Account {
  store::QuotaRow row;
  store::QuotaRow stored;  // what the store holds; at least the row, where the tenant has limits
  TenantLimits limits;     // of the latest call
  store::QuotaRow lease;   // with a pool: what this gateway may use, of the row's windows
  bool used_lately = false;
};

// How far ahead of the row the store is.
std::int64_t Lead(const std::optional<std::int64_t>& limit) {
  return limit ? std::max<std::int64_t>(1, *limit / kLeadShare) : 0;
}

// Whether `used` and `ask` together pass a limit, and what to say then.
std::optional<QuotaRefusal> Exceeded(const QuotaRequest& request, const store::QuotaRow& used,
                                     const store::QuotaAmounts& ask, system_clock::time_point now) {
  const TenantLimits& limits = request.limits;
  const auto refuse = [&](const char* which, std::string message, bool money) {
    QuotaRefusal refusal;
    refusal.limit = which;
    refusal.error = {ErrorKind::kResourceExhausted, std::move(message), "",
                     money ? api::kInsufficientQuota : api::kRateLimitExceeded};
    const auto end =
        money ? NextMonth(now) : system_clock::time_point(std::chrono::minutes(MinuteOf(now) + 1));
    refusal.retry_after = std::chrono::duration_cast<Nanos>(end - now);
    return refusal;
  };
  if (limits.requests_per_minute &&
      used.minute_requests + ask.requests > *limits.requests_per_minute) {
    return refuse(kRequests,
                  fmt::format("'{}' may send {} requests a minute and has", request.tenant,
                              *limits.requests_per_minute),
                  false);
  }
  if (limits.tokens_per_minute && used.minute_tokens + ask.tokens > *limits.tokens_per_minute) {
    return refuse(
        kTokens,
        fmt::format("'{}' may use {} tokens a minute; {} are used or reserved and this "
                    "request may take {}",
                    request.tenant, *limits.tokens_per_minute, used.minute_tokens, ask.tokens),
        false);
  }
  if (limits.nano_usd_per_month &&
      used.month_nano_usd + ask.nano_usd > *limits.nano_usd_per_month) {
    return refuse(
        kMoney,
        fmt::format("the budget of '{}' for {} is {:.4f} USD; {:.4f} are used or reserved and this "
                    "request may cost {:.6f}",
                    request.tenant, MonthName(MonthOf(now)), Usd(*limits.nano_usd_per_month),
                    Usd(used.month_nano_usd), Usd(ask.nano_usd)),
        true);
  }
  return std::nullopt;
}

store::QuotaAmounts AskOf(const QuotaRequest& request) {
  return {
      1, request.prompt_tokens + request.answer_tokens,
      request.prompt_tokens * request.price.input + request.answer_tokens * request.price.output};
}

void Add(store::UsageRow& sum, const store::UsageRow& more) {
  sum.month = more.month;
  sum.tenant = more.tenant;
  sum.model = more.model;
  sum.requests += more.requests;
  sum.prompt_tokens += more.prompt_tokens;
  sum.cached_tokens += more.cached_tokens;
  sum.output_tokens += more.output_tokens;
  sum.nano_usd += more.nano_usd;
}

}  // namespace

std::int64_t MonthOf(system_clock::time_point time) {
  const auto date = Date(time);
  return static_cast<int>(date.year()) * 12 + static_cast<unsigned>(date.month()) - 1;
}

std::string MonthName(std::int64_t month) {
  return fmt::format("{:04}-{:02}", month / 12, month % 12 + 1);
}

struct QuotaLedger::Impl {
  WallClock now;

  mutable std::mutex mutex;  // guards what follows, down to the store
  std::map<std::string, Account, std::less<>> accounts;
  std::map<UsageKey, store::UsageRow> usage;
  std::set<std::string> dirty_quotas;
  std::set<UsageKey> dirty_usage;
  std::map<std::pair<std::string, std::string>, std::uint64_t> refusals;
  bool stopping = false;
  std::condition_variable changed;

  std::mutex leasing;      // one lease at a time; taken before `mutex`
  std::mutex store_mutex;  // guards the store's Save; taken after `mutex` or alone
  std::unique_ptr<store::QuotaStore> store;
  std::unique_ptr<store::QuotaPool> pool;      // instead of a store
  std::map<UsageKey, store::UsageRow> unsent;  // guarded by mutex: what the pool does not know yet
  const Clock* clock = nullptr;
  Nanos give_back_every{};
  std::optional<Nanos> pool_try_again;  // guarded by mutex; absent: it has not failed
  std::atomic<std::uint64_t> failures{0};
  std::thread writer;

  // What the account's lease lacks to cover the call; absent: nothing. The mutex is held.
  static std::optional<store::LeaseRequest> Lacking(const QuotaRequest& request, Account& account,
                                                    const store::QuotaAmounts& ask) {
    const store::QuotaRow& row = account.row;
    store::QuotaRow& lease = account.lease;
    if (lease.minute != row.minute) lease.minute_requests = lease.minute_tokens = 0;
    if (lease.month != row.month) lease.month_nano_usd = 0;
    lease.minute = row.minute;
    lease.month = row.month;
    account.used_lately = true;
    const TenantLimits& limits = request.limits;
    store::LeaseRequest asked{request.tenant,
                              row.minute,
                              row.month,
                              {},
                              {},
                              limits.requests_per_minute,
                              limits.tokens_per_minute,
                              limits.nano_usd_per_month};
    bool covered = true;
    const auto cover = [&](const std::optional<std::int64_t>& bound, std::int64_t wanted,
                           std::int64_t held, std::int64_t& need, std::int64_t& want) {
      if (!bound || wanted <= held) return;
      covered = false;
      need = wanted - held;
      want = std::max(need, Lead(bound));
    };
    cover(limits.requests_per_minute, row.minute_requests + ask.requests, lease.minute_requests,
          asked.need.requests, asked.want.requests);
    cover(limits.tokens_per_minute, row.minute_tokens + ask.tokens, lease.minute_tokens,
          asked.need.tokens, asked.want.tokens);
    cover(limits.nano_usd_per_month, row.month_nano_usd + ask.nano_usd, lease.month_nano_usd,
          asked.need.nano_usd, asked.want.nano_usd);
    if (covered) return std::nullopt;
    return asked;
  }

  bool PoolPaused() const { return pool_try_again && clock->Now() < *pool_try_again; }

  // Leases what the call lacks. `leasing` is held, the mutex is not: only calls that need the pool
  // wait for it.
  std::optional<QuotaRefusal> TakeLease(const QuotaRequest& request) {
    const system_clock::time_point time = now();
    std::unique_lock lock(mutex);
    Row(request.tenant, MinuteOf(time), MonthOf(time));
    Account& account = accounts[request.tenant];
    const auto asked = Lacking(request, account, AskOf(request));
    if (!asked) return std::nullopt;
    if (PoolPaused()) return Unreachable();
    lock.unlock();
    const auto taken = pool->Take(*asked);
    lock.lock();
    if (!taken) {
      pool_try_again = clock->Now() + kPoolPause;
      Note(tl::unexpected(taken.error()));
      return Unreachable();
    }
    if (taken->granted) {
      // Of a window that ended meanwhile it counts as used there.
      store::QuotaRow& lease = account.lease;
      if (lease.minute == asked->minute) {
        lease.minute_requests += taken->amounts.requests;
        lease.minute_tokens += taken->amounts.tokens;
      }
      if (lease.month == asked->month) lease.month_nano_usd += taken->amounts.nano_usd;
      return std::nullopt;
    }
    store::QuotaRow all = taken->taken;
    if (all.minute < asked->minute) all.minute_requests = all.minute_tokens = 0;
    if (all.month < asked->month) all.month_nano_usd = 0;
    auto refusal = Exceeded(request, all, asked->need, time);
    // What was given back between the two looks: the client may come again at once.
    return refusal ? refusal : Unreachable();
  }

  static QuotaRefusal Unreachable() {
    return {{ErrorKind::kUnavailable, "what this tenant has left cannot be asked for now; retry",
             "", ""},
            kPoolPause,
            kStore};
  }

  // Gives back the leases nobody used lately, or all of them.
  void GiveBack(std::unique_lock<std::mutex>& lock, bool all) {
    struct Spare {
      std::string tenant;
      std::int64_t minute, month;
      store::QuotaAmounts amounts;
    };
    std::vector<Spare> spares;
    for (auto& [tenant, account] : accounts) {
      if (std::exchange(account.used_lately, false) && !all) continue;
      store::QuotaRow& lease = account.lease;
      const store::QuotaRow& row = account.row;
      if (lease.minute != row.minute && lease.month != row.month) continue;
      const auto spare = [](std::int64_t& held, std::int64_t used) {
        const std::int64_t over = std::max<std::int64_t>(0, held - used);
        held -= over;
        return over;
      };
      const store::QuotaAmounts amounts{spare(lease.minute_requests, row.minute_requests),
                                        spare(lease.minute_tokens, row.minute_tokens),
                                        spare(lease.month_nano_usd, row.month_nano_usd)};
      if (amounts.requests + amounts.tokens + amounts.nano_usd == 0) continue;
      spares.push_back({tenant, lease.minute, lease.month, amounts});
    }
    if (spares.empty()) return;
    lock.unlock();
    for (const Spare& spare : spares) {
      // What cannot be given back counts as used until its window ends.
      Note(pool->GiveBack(spare.tenant, spare.minute, spare.month, spare.amounts));
    }
    lock.lock();
  }

  void SendUsage(std::unique_lock<std::mutex>& lock) {
    if (unsent.empty()) return;
    std::map<UsageKey, store::UsageRow> sending;
    sending.swap(unsent);
    lock.unlock();
    std::vector<store::UsageRow> rows;
    for (const auto& [key, row] : sending) rows.push_back(row);
    const Status sent = pool->AddUsage(rows);
    Note(sent);
    lock.lock();
    if (sent) return;
    for (const auto& [key, row] : sending) Add(unsent[key], row);
  }

  void PoolLoop() {
    std::unique_lock lock(mutex);
    bool last = false;
    do {
      changed.wait_for(lock, give_back_every, [this] { return stopping; });
      last = stopping;
      GiveBack(lock, /*all=*/last);
      SendUsage(lock);
    } while (!last);
  }

  // The tenant's row with windows that are over emptied.
  store::QuotaRow& Row(const std::string& tenant, std::int64_t minute, std::int64_t month) {
    store::QuotaRow& row = accounts[tenant].row;
    row.tenant = tenant;
    if (row.minute != minute) {
      row.minute = minute;
      row.minute_requests = row.minute_tokens = 0;
    }
    if (row.month != month) {
      row.month = month;
      row.month_nano_usd = 0;
    }
    return row;
  }

  // Counts a failure, and says so the first time.
  void Note(const Status& saved) {
    if (saved || failures.fetch_add(1) != 0) return;
    if (pool != nullptr) {
      LogError("{}; limits hold, but calls beyond what this gateway has leased are refused",
               saved.error().message);
      return;
    }
    LogError("usage is counted but not kept: {}; restarting now would forget it",
             saved.error().message);
  }

  void SaveNow(const store::QuotaRow& row) {
    std::lock_guard lock(store_mutex);
    Note(store->Save({&row, 1}, {}));
  }

  // The account's row as it goes to the store.
  static store::QuotaRow Ahead(const Account& account) {
    store::QuotaRow ahead = account.row;
    ahead.minute_requests += Lead(account.limits.requests_per_minute);
    ahead.minute_tokens += Lead(account.limits.tokens_per_minute);
    ahead.month_nano_usd += Lead(account.limits.nano_usd_per_month);
    return ahead;
  }
  static bool Covered(const Account& account) {
    const store::QuotaRow& row = account.row;
    const store::QuotaRow& stored = account.stored;
    const TenantLimits& limits = account.limits;
    const bool minute = stored.minute == row.minute, month = stored.month == row.month;
    const auto covered = [](const std::optional<std::int64_t>& limit, bool same_window,
                            std::int64_t kept,
                            std::int64_t used) { return !limit || (same_window && kept >= used); };
    return covered(limits.requests_per_minute, minute, stored.minute_requests,
                   row.minute_requests) &&
           covered(limits.tokens_per_minute, minute, stored.minute_tokens, row.minute_tokens) &&
           covered(limits.nano_usd_per_month, month, stored.month_nano_usd, row.month_nano_usd);
  }

  bool Dirty() const { return !dirty_quotas.empty() || !dirty_usage.empty(); }

  void WriteDirty(std::unique_lock<std::mutex>& lock) {
    std::vector<store::QuotaRow> rows;
    std::vector<store::UsageRow> used;
    for (const std::string& tenant : std::exchange(dirty_quotas, {})) {
      Account& account = accounts[tenant];
      // The last write is exact: there is no crash to be ahead of.
      account.stored = stopping ? account.row : Ahead(account);
      rows.push_back(account.stored);
    }
    for (const UsageKey& key : std::exchange(dirty_usage, {})) used.push_back(usage[key]);
    // The store's mutex before the other is let go: a newer row must not be overwritten by these.
    std::unique_lock saving(store_mutex);
    lock.unlock();
    Note(store->Save(rows, used));
    saving.unlock();
    lock.lock();
  }

  void WriteLoop() {
    std::unique_lock lock(mutex);
    auto checkpoint = std::chrono::steady_clock::now() + kCheckpointEvery;
    while (!stopping) {
      changed.wait_until(lock, checkpoint, [this] { return stopping || Dirty(); });
      if (!stopping && Dirty()) {
        changed.wait_for(lock, kWriteDelay, [this] { return stopping; });
      }
      if (Dirty()) WriteDirty(lock);
      if (std::chrono::steady_clock::now() < checkpoint) continue;
      lock.unlock();
      if (const Status done = store->Checkpoint(); !done) failures.fetch_add(1);
      lock.lock();
      checkpoint = std::chrono::steady_clock::now() + kCheckpointEvery;
    }
    for (const auto& [tenant, account] : accounts) dirty_quotas.insert(tenant);
    WriteDirty(lock);
  }
};

QuotaLedger::QuotaLedger(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

QuotaLedger::~QuotaLedger() {
  if (!impl_->writer.joinable()) return;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->changed.notify_all();
  impl_->writer.join();
  if (impl_->pool != nullptr) return;
  if (const Status done = impl_->store->Checkpoint(); !done) {
    LogWarn("{}", done.error().message);
  }
}

Result<std::shared_ptr<QuotaLedger>> QuotaLedger::Create(std::unique_ptr<store::QuotaStore> store,
                                                         WallClock now) {
  auto impl = std::make_unique<Impl>();
  impl->now = now != nullptr ? std::move(now) : [] { return system_clock::now(); };
  if (store != nullptr) {
    TARE_TRY(const std::vector<store::QuotaRow> rows, store->Quotas());
    for (const store::QuotaRow& row : rows) impl->accounts[row.tenant] = {row, row, {}};
    TARE_TRY(const std::vector<store::UsageRow> used, store->Usage());
    for (const store::UsageRow& row : used) impl->usage[{row.month, row.tenant, row.model}] = row;
    impl->store = std::move(store);
    impl->writer = std::thread([ledger = impl.get()] { ledger->WriteLoop(); });
  }
  std::shared_ptr<QuotaLedger> ledger(new QuotaLedger(std::move(impl)));
  ledger->self_ = ledger;
  return ledger;
}

Result<std::shared_ptr<QuotaLedger>> QuotaLedger::CreateShared(
    std::unique_ptr<store::QuotaPool> pool, SharedOptions options) {
  auto impl = std::make_unique<Impl>();
  impl->now = options.now != nullptr ? std::move(options.now) : [] { return system_clock::now(); };
  impl->clock = OrSteady(options.clock);
  impl->give_back_every = options.give_back_every;
  impl->pool = std::move(pool);
  impl->writer = std::thread([ledger = impl.get()] { ledger->PoolLoop(); });
  std::shared_ptr<QuotaLedger> ledger(new QuotaLedger(std::move(impl)));
  ledger->self_ = ledger;
  return ledger;
}

std::optional<QuotaLedger::Held> QuotaLedger::Try(const QuotaRequest& request) {
  Impl& impl = *impl_;
  const system_clock::time_point now = impl.now();
  const store::QuotaAmounts ask = AskOf(request);
  Reservation held;
  held.minute_ = MinuteOf(now);
  held.month_ = MonthOf(now);
  held.tokens_ = ask.tokens;
  held.nano_usd_ = ask.nano_usd;
  const TenantLimits& limits = request.limits;

  std::lock_guard lock(impl.mutex);
  store::QuotaRow& row = impl.Row(request.tenant, held.minute_, held.month_);
  if (impl.pool == nullptr) {
    if (auto refusal = Exceeded(request, row, ask, now)) {
      return tl::unexpected(*std::move(refusal));
    }
  } else if (limits.any() && Impl::Lacking(request, impl.accounts[request.tenant], ask)) {
    if (!impl.PoolPaused()) return std::nullopt;
    return tl::unexpected(Impl::Unreachable());
  }
  row.minute_requests += ask.requests;
  row.minute_tokens += ask.tokens;
  row.month_nano_usd += ask.nano_usd;
  if (impl.store != nullptr && limits.any()) {
    Account& account = impl.accounts[request.tenant];
    account.limits = limits;
    if (!Impl::Covered(account)) {
      account.stored = Impl::Ahead(account);
      impl.SaveNow(account.stored);
    }
  }
  held.ledger_ = self_.lock();
  held.request_ = request;
  return held;
}

QuotaLedger::Held QuotaLedger::Counted(const QuotaRequest& request, Held held) {
  if (!held) {
    std::lock_guard lock(impl_->mutex);
    ++impl_->refusals[{request.tenant, held.error().limit}];
  }
  return held;
}

std::optional<QuotaLedger::Held> QuotaLedger::TryReserve(const QuotaRequest& request) {
  auto held = Try(request);
  if (!held) return std::nullopt;
  return Counted(request, *std::move(held));
}

QuotaLedger::Held QuotaLedger::Reserve(const QuotaRequest& request) {
  auto held = Try(request);
  if (held) return Counted(request, *std::move(held));
  std::lock_guard one(impl_->leasing);
  for (int i = 0; i < kLeaseTries; ++i) {
    // What the call before this one brought may be enough.
    if (held = Try(request); held) return Counted(request, *std::move(held));
    if (auto refusal = impl_->TakeLease(request)) {
      // Unless an answer that ended meanwhile left enough.
      if (held = Try(request); held && *held) return *std::move(held);
      return Counted(request, tl::unexpected(*std::move(refusal)));
    }
  }
  return Counted(request, tl::unexpected(Impl::Unreachable()));
}

QuotaLedger::Reservation::Reservation(Reservation&& other) noexcept { *this = std::move(other); }
QuotaLedger::Reservation& QuotaLedger::Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  Release();
  ledger_ = std::exchange(other.ledger_, nullptr);
  request_ = std::move(other.request_);
  minute_ = other.minute_;
  month_ = other.month_;
  tokens_ = other.tokens_;
  nano_usd_ = other.nano_usd_;
  return *this;
}
QuotaLedger::Reservation::~Reservation() { Release(); }

void QuotaLedger::Reservation::Release() {
  const std::shared_ptr<QuotaLedger> ledger = std::exchange(ledger_, nullptr);
  if (ledger == nullptr) return;
  Impl& impl = *ledger->impl_;
  std::lock_guard lock(impl.mutex);
  store::QuotaRow& row = impl.accounts[request_.tenant].row;
  if (row.minute == minute_) {
    row.minute_requests -= 1;
    row.minute_tokens -= tokens_;
  }
  if (row.month == month_) row.month_nano_usd -= nano_usd_;
  if (impl.store == nullptr) return;
  const bool was_clean = !impl.Dirty();
  impl.dirty_quotas.insert(request_.tenant);
  if (was_clean) impl.changed.notify_one();
}

void QuotaLedger::Reservation::Settle(const api::Usage& usage) {
  const std::shared_ptr<QuotaLedger> ledger = std::exchange(ledger_, nullptr);
  if (ledger == nullptr) return;
  const std::int64_t cost = request_.price.Of(usage);
  const std::int64_t tokens = std::int64_t{usage.prompt_tokens} + usage.completion_tokens;
  Impl& impl = *ledger->impl_;
  std::lock_guard lock(impl.mutex);
  store::QuotaRow& row = impl.accounts[request_.tenant].row;
  if (row.minute == minute_) row.minute_tokens += tokens - tokens_;
  if (row.month == month_) row.month_nano_usd += cost - nano_usd_;
  UsageKey key(month_, request_.tenant, request_.model);
  store::UsageRow& used = impl.usage[key];
  const store::UsageRow more{month_,
                             request_.tenant,
                             request_.model,
                             1,
                             usage.prompt_tokens,
                             usage.cached_tokens,
                             usage.completion_tokens,
                             cost};
  Add(used, more);
  if (impl.pool != nullptr) Add(impl.unsent[key], more);
  if (impl.store == nullptr) return;
  // Only the first change since the last write wakes the writer: waking it for each would cost two
  // switches between threads a request.
  const bool was_clean = !impl.Dirty();
  impl.dirty_quotas.insert(request_.tenant);
  impl.dirty_usage.insert(std::move(key));
  if (was_clean) impl.changed.notify_one();
}

std::vector<store::UsageRow> QuotaLedger::Usage() const {
  std::lock_guard lock(impl_->mutex);
  std::vector<store::UsageRow> rows;
  for (const auto& [key, row] : impl_->usage) rows.push_back(row);
  return rows;
}

std::vector<store::QuotaRow> QuotaLedger::Quotas() const {
  const system_clock::time_point now = impl_->now();
  std::lock_guard lock(impl_->mutex);
  std::vector<store::QuotaRow> rows;
  for (auto& [tenant, known] : impl_->accounts) {
    rows.push_back(impl_->Row(tenant, MinuteOf(now), MonthOf(now)));
  }
  return rows;
}

Result<std::vector<store::UsageRow>> QuotaLedger::TotalUsage() const {
  if (impl_->pool == nullptr) return Usage();
  TARE_TRY(const std::vector<store::UsageRow> known, impl_->pool->Usage());
  std::map<UsageKey, store::UsageRow> sums;
  for (const store::UsageRow& row : known) Add(sums[{row.month, row.tenant, row.model}], row);
  {
    std::lock_guard lock(impl_->mutex);
    for (const auto& [key, row] : impl_->unsent) Add(sums[key], row);
  }
  std::vector<store::UsageRow> rows;
  for (const auto& [key, row] : sums) rows.push_back(row);
  return rows;
}

Result<std::vector<store::QuotaRow>> QuotaLedger::TotalQuotas() const {
  if (impl_->pool == nullptr) return Quotas();
  TARE_TRY(std::vector<store::QuotaRow> rows, impl_->pool->Quotas());
  const system_clock::time_point now = impl_->now();
  for (store::QuotaRow& row : rows) {
    if (row.minute < MinuteOf(now)) row.minute_requests = row.minute_tokens = 0;
    if (row.month < MonthOf(now)) {
      row.month = MonthOf(now);
      row.month_nano_usd = 0;
    }
  }
  return rows;
}

std::vector<RefusalCount> QuotaLedger::Refusals() const {
  std::lock_guard lock(impl_->mutex);
  std::vector<RefusalCount> counts;
  for (const auto& [key, count] : impl_->refusals) counts.push_back({key.first, key.second, count});
  return counts;
}

std::uint64_t QuotaLedger::store_failures() const { return impl_->failures.load(); }

}  // namespace tare::gateway
