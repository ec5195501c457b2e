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
// Usage is written this long after it changed, with all that changed meanwhile.
constexpr auto kWriteDelay = std::chrono::milliseconds(20);
// A crash may leave this share (one in a hundred) of a limit unused.
constexpr std::int64_t kLeadShare = 100;
constexpr auto kCheckpointEvery = std::chrono::seconds(5);

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

double Usd(std::int64_t nano_usd) { return static_cast<double>(nano_usd) * 1e-9; }

using UsageKey = std::tuple<std::int64_t, std::string, std::string>;  // month, tenant, model

struct Account {
  store::QuotaRow row;
  store::QuotaRow stored;  // what the store holds; at least the row, where the tenant has limits
  TenantLimits limits;     // of the latest call
};

// How far ahead of the row the store is.
std::int64_t Lead(const std::optional<std::int64_t>& limit) {
  return limit ? std::max<std::int64_t>(1, *limit / kLeadShare) : 0;
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

  std::mutex store_mutex;  // guards the store's Save; taken after `mutex` or alone
  std::unique_ptr<store::QuotaStore> store;
  std::atomic<std::uint64_t> failures{0};
  std::thread writer;

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
    const bool minute = stored.minute == row.minute &&
                        stored.minute_requests >= row.minute_requests &&
                        stored.minute_tokens >= row.minute_tokens;
    const bool month = stored.month == row.month && stored.month_nano_usd >= row.month_nano_usd;
    return (minute || !(limits.requests_per_minute || limits.tokens_per_minute)) &&
           (month || !limits.nano_usd_per_month);
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

tl::expected<QuotaLedger::Reservation, QuotaRefusal> QuotaLedger::Reserve(QuotaRequest request) {
  Impl& impl = *impl_;
  const system_clock::time_point now = impl.now();
  Reservation held;
  held.minute_ = MinuteOf(now);
  held.month_ = MonthOf(now);
  held.tokens_ = request.prompt_tokens + request.answer_tokens;
  held.nano_usd_ =
      request.prompt_tokens * request.price.input + request.answer_tokens * request.price.output;
  const TenantLimits& limits = request.limits;

  std::lock_guard lock(impl.mutex);
  store::QuotaRow& row = impl.Row(request.tenant, held.minute_, held.month_);
  const auto refuse = [&](const char* limit, std::string message, bool money) {
    ++impl.refusals[{request.tenant, limit}];
    QuotaRefusal refusal;
    refusal.error = {ErrorKind::kResourceExhausted, std::move(message), "",
                     money ? api::kInsufficientQuota : api::kRateLimitExceeded};
    const auto end =
        money ? NextMonth(now) : system_clock::time_point(std::chrono::minutes(held.minute_ + 1));
    refusal.retry_after = std::chrono::duration_cast<Nanos>(end - now);
    return tl::unexpected(std::move(refusal));
  };
  if (limits.requests_per_minute && row.minute_requests >= *limits.requests_per_minute) {
    return refuse(kRequests,
                  fmt::format("'{}' may send {} requests a minute and has", request.tenant,
                              *limits.requests_per_minute),
                  false);
  }
  if (limits.tokens_per_minute && row.minute_tokens + held.tokens_ > *limits.tokens_per_minute) {
    return refuse(
        kTokens,
        fmt::format("'{}' may use {} tokens a minute; {} are used or reserved and this "
                    "request may take {}",
                    request.tenant, *limits.tokens_per_minute, row.minute_tokens, held.tokens_),
        false);
  }
  if (limits.nano_usd_per_month &&
      row.month_nano_usd + held.nano_usd_ > *limits.nano_usd_per_month) {
    return refuse(
        kMoney,
        fmt::format("the budget of '{}' for {} is {:.4f} USD; {:.4f} are used or reserved and this "
                    "request may cost {:.6f}",
                    request.tenant, MonthName(held.month_), Usd(*limits.nano_usd_per_month),
                    Usd(row.month_nano_usd), Usd(held.nano_usd_)),
        true);
  }
  row.minute_requests += 1;
  row.minute_tokens += held.tokens_;
  row.month_nano_usd += held.nano_usd_;
  if (impl.store != nullptr && limits.any()) {
    Account& account = impl.accounts[request.tenant];
    account.limits = limits;
    if (!Impl::Covered(account)) {
      account.stored = Impl::Ahead(account);
      impl.SaveNow(account.stored);
    }
  }
  held.ledger_ = self_.lock();
  held.request_ = std::move(request);
  return held;
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
  used.month = month_;
  used.tenant = request_.tenant;
  used.model = request_.model;
  used.requests += 1;
  used.prompt_tokens += usage.prompt_tokens;
  used.cached_tokens += usage.cached_tokens;
  used.output_tokens += usage.completion_tokens;
  used.nano_usd += cost;
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

std::vector<RefusalCount> QuotaLedger::Refusals() const {
  std::lock_guard lock(impl_->mutex);
  std::vector<RefusalCount> counts;
  for (const auto& [key, count] : impl_->refusals) counts.push_back({key.first, key.second, count});
  return counts;
}

std::uint64_t QuotaLedger::store_failures() const { return impl_->failures.load(); }

}  // namespace tare::gateway
