#include "gateway/quota.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <thread>

#include "api/wire_error.h"
#include "store/test_postgres.h"

namespace tare::gateway {
namespace {

using namespace std::chrono_literals;
using std::chrono::system_clock;
using ::testing::HasSubstr;

constexpr system_clock::time_point kNow =
    std::chrono::sys_days(std::chrono::year(2026) / 11 / 30) + 23h + 59min + 30s;

std::shared_ptr<QuotaLedger> Ledger(const system_clock::time_point* now,
                                    const std::filesystem::path& file = {}) {
  std::unique_ptr<store::QuotaStore> store;
  if (!file.empty()) {
    auto opened = store::QuotaStore::Open(file);
    EXPECT_TRUE(opened) << opened.error().message;
    store = std::make_unique<store::QuotaStore>(std::move(*opened));
  }
  auto ledger = QuotaLedger::Create(std::move(store), [now] { return *now; });
  EXPECT_TRUE(ledger) << ledger.error().message;
  return *ledger;
}

QuotaRequest Request(TenantLimits limits, std::int64_t prompt = 100, std::int64_t answer = 50) {
  return {"t", "m", limits, {1000, 100, 2000}, prompt, answer};
}

TEST(Quota, AMinutesRequestsAreCountedByTheClocksMinute) {
  auto now = kNow;
  const auto ledger = Ledger(&now);
  const TenantLimits limits{.requests_per_minute = 2};
  auto first = ledger->Reserve(Request(limits));
  ASSERT_TRUE(first);
  first->Settle({1, 1, 0});
  ASSERT_TRUE(ledger->Reserve(Request(limits))) << "given back at once, as it is dropped";
  auto second = ledger->Reserve(Request(limits));
  ASSERT_TRUE(second);
  const auto third = ledger->Reserve(Request(limits));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().error.code, api::kRateLimitExceeded);
  EXPECT_EQ(api::HttpStatus(third.error().error), 429);
  EXPECT_EQ(third.error().retry_after, 30s);
  EXPECT_EQ(ledger->Refusals().at(0).limit, "requests_per_minute");
  now += 30s;
  EXPECT_TRUE(ledger->Reserve(Request(limits)));
}

TEST(Quota, TokensAreReservedThenReplacedByWhatWasUsed) {
  auto now = kNow;
  const auto ledger = Ledger(&now);
  const TenantLimits limits{.tokens_per_minute = 300};
  auto first = ledger->Reserve(Request(limits));
  auto second = ledger->Reserve(Request(limits));
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(ledger->Reserve(Request(limits, 1, 0))) << "300 are reserved";
  first->Settle({40, 10, 0});
  EXPECT_EQ(ledger->Quotas().at(0).minute_tokens, 200);
  EXPECT_TRUE(ledger->Reserve(Request(limits, 100, 0)));
  second->Release();
  EXPECT_EQ(ledger->Quotas().at(0).minute_tokens, 50);
}

TEST(Quota, MoneyIsExactAndEndsWithTheMonth) {
  auto now = kNow;
  const auto ledger = Ledger(&now);
  // 100 x 1000 + 50 x 2000 nano-USD a request: room for three.
  const TenantLimits limits{.nano_usd_per_month = 600'000};
  for (int i = 0; i < 3; ++i) {
    auto held = ledger->Reserve(Request(limits));
    ASSERT_TRUE(held) << i;
    held->Settle({100, 50, 0});
  }
  const auto refused = ledger->Reserve(Request(limits, 1, 0));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code, api::kInsufficientQuota);
  EXPECT_THAT(refused.error().error.message, HasSubstr("2026-11"));
  EXPECT_EQ(refused.error().retry_after, 30s);
  now += 30s;
  auto held = ledger->Reserve(Request(limits));
  ASSERT_TRUE(held);
  held->Settle({100, 50, 100});
  const auto usage = ledger->Usage();
  ASSERT_EQ(usage.size(), 2u);
  EXPECT_EQ(MonthName(usage[0].month), "2026-11");
  EXPECT_EQ(usage[0].requests, 3);
  EXPECT_EQ(usage[0].nano_usd, 600'000);
  EXPECT_EQ(MonthName(usage[1].month), "2026-12");
  EXPECT_EQ(usage[1].nano_usd, 110'000) << "cached input has its own price";
}

TEST(Quota, AnAnswerThatEndsInTheNextWindowIsSettledInItsOwn) {
  auto now = kNow;
  const auto ledger = Ledger(&now);
  auto held = ledger->Reserve(Request({.tokens_per_minute = 1000}));
  ASSERT_TRUE(held);
  now += 1min;
  auto next = ledger->Reserve(Request({.tokens_per_minute = 1000}));
  held->Settle({100, 10, 0});
  EXPECT_EQ(ledger->Quotas().at(0).minute_tokens, 150) << "only the newer call counts here";
  EXPECT_EQ(MonthName(ledger->Usage().at(0).month), "2026-11");
}

// 64 clients against a budget for 1,000 requests: 1,000 are served, never 1,001.
TEST(Quota, ABudgetIsExactUnderConcurrency) {
  auto now = kNow;
  const auto ledger = Ledger(&now);
  const TenantLimits limits{.nano_usd_per_month = 1000 * 200'000};
  std::atomic<int> served{0}, refused{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 64; ++i) {
    clients.emplace_back([&, i] {
      for (int n = 0; n < 40; ++n) {
        auto held = ledger->Reserve(Request(limits));
        if (!held) {
          ++refused;
        } else if ((i + n) % 7 == 0) {
          held->Release();  // the upstream failed
        } else {
          held->Settle({100, 50, 0});
          ++served;
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  while (auto held = ledger->Reserve(Request(limits))) {
    held->Settle({100, 50, 0});
    ++served;
  }
  EXPECT_EQ(served, 1000);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(ledger->Usage().at(0).requests, 1000);
}

class QuotaFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tare-ledger-XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
    file_ = dir_ / "quotas.db";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path dir_, file_;
};

TEST_F(QuotaFileTest, OutlivesARestart) {
  auto now = kNow;
  const TenantLimits limits{.requests_per_minute = 2};
  {
    const auto ledger = Ledger(&now, file_);
    ledger->Reserve(Request(limits))->Settle({10, 5, 0});
  }
  const auto ledger = Ledger(&now, file_);
  EXPECT_EQ(ledger->Usage().at(0).prompt_tokens, 10);
  auto held = ledger->Reserve(Request(limits));
  EXPECT_TRUE(held);
  EXPECT_FALSE(ledger->Reserve(Request(limits))) << "the first one still counts";
  EXPECT_EQ(ledger->store_failures(), 0u);
}

// A call writes by itself only when it passes what the file is ahead: only limits count for that.
TEST_F(QuotaFileTest, ACallWithinTheLeadDoesNotWaitForTheFile) {
  auto now = kNow;
  const auto wal = dir_ / "quotas.db-wal";
  for (const TenantLimits& limits :
       {TenantLimits{.requests_per_minute = 10'000}, TenantLimits{.tokens_per_minute = 1'000'000},
        TenantLimits{.nano_usd_per_month = 1'000'000'000}}) {
    std::filesystem::remove(file_);
    const auto ledger = Ledger(&now, file_);
    auto first = ledger->Reserve(Request(limits));
    const auto written = std::filesystem::file_size(wal);
    std::vector<QuotaLedger::Held> open;
    for (int i = 0; i < 40; ++i) open.push_back(ledger->Reserve(Request(limits)));
    EXPECT_EQ(std::filesystem::file_size(wal), written);
    for (auto& held : open) held->Settle({1, 1, 0});
  }
}

// A process killed in the midst of its calls: what it served and what it had promised counts, so
// that before and after together never exceed the budget.
TEST_F(QuotaFileTest, AKilledProcessNeverMakesRoomForMore) {
  auto now = kNow;
  const TenantLimits limits{.nano_usd_per_month = 1000 * 200'000};
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto ledger = Ledger(&now, file_);
    std::vector<QuotaLedger::Reservation> open;
    for (int i = 0;; ++i) {
      auto held = ledger->Reserve(Request(limits));
      if (!held || ::write(pipe[1], "x", 1) != 1) ::pause();
      if (i % 5 == 0) {
        open.push_back(std::move(*held));  // under way when the end comes
      } else {
        held->Settle({100, 50, 0});
      }
    }
  }
  ::close(pipe[1]);
  std::array<char, 1> byte{};
  int promised = 0;
  while (promised < 400 && ::read(pipe[0], byte.data(), 1) == 1) ++promised;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  while (::read(pipe[0], byte.data(), 1) == 1) ++promised;
  ::close(pipe[0]);

  const auto ledger = Ledger(&now, file_);
  int more = 0;
  while (auto held = ledger->Reserve(Request(limits))) {
    held->Settle({100, 50, 0});
    ++more;
  }
  EXPECT_LE(promised + more, 1000);
  EXPECT_GE(promised + more, 989) << "what was ahead in the store, and the call being reserved";
}

// ----- budgets that several gateways share

// A pool in memory that can be told to fail.
class FakePool final : public store::QuotaPool {
 public:
  struct State {
    std::mutex mutex;
    store::QuotaAmounts taken;
    int takes = 0;
    bool down = false;
    bool hangs = false;  // Take waits until this is over
    std::condition_variable changed;
    std::vector<store::UsageRow> usage;
  };
  explicit FakePool(std::shared_ptr<State> state) : state_(std::move(state)) {}

  Result<store::Lease> Take(const store::LeaseRequest& request) override {
    std::unique_lock lock(state_->mutex);
    ++state_->takes;
    state_->changed.notify_all();
    state_->changed.wait(lock, [this] { return !state_->hangs; });
    if (state_->down) return Fail(ErrorKind::kUnavailable, "no database");
    store::Lease lease;
    const std::int64_t left = *request.limit_requests - state_->taken.requests;
    lease.granted = request.need.requests <= left;
    if (lease.granted) {
      lease.amounts.requests = std::min(request.want.requests, left);
      state_->taken.requests += lease.amounts.requests;
    }
    lease.taken = {request.tenant, request.minute, state_->taken.requests, 0, request.month, 0};
    return lease;
  }
  Status GiveBack(const std::string&, std::int64_t, std::int64_t,
                  const store::QuotaAmounts& amounts) override {
    std::lock_guard lock(state_->mutex);
    state_->taken.requests -= amounts.requests;
    return {};
  }
  Status AddUsage(std::span<const store::UsageRow> more) override {
    std::lock_guard lock(state_->mutex);
    state_->usage.insert(state_->usage.end(), more.begin(), more.end());
    return {};
  }
  Result<std::vector<store::UsageRow>> Usage() override {
    std::lock_guard lock(state_->mutex);
    return state_->usage;
  }
  Result<std::vector<store::QuotaRow>> Quotas() override { return std::vector<store::QuotaRow>(); }

 private:
  const std::shared_ptr<State> state_;
};

// A ledger whose pauses and give-backs do not depend on how long the test takes: the clock stands
// and leases are given back at the end.
std::shared_ptr<QuotaLedger> Shared(const std::shared_ptr<FakePool::State>& state,
                                    const ManualClock& clock) {
  return *QuotaLedger::CreateShared(std::make_unique<FakePool>(state),
                                    {[] { return kNow; }, &clock, std::chrono::hours(1)});
}

TEST(SharedQuota, ALeaseServesManyCallsAndTheRestGoesBack) {
  const auto state = std::make_shared<FakePool::State>();
  const TenantLimits limits{.requests_per_minute = 1000};
  {
    const ManualClock clock;
    const auto ledger = Shared(state, clock);
    for (int i = 0; i < 25; ++i) {
      auto held = ledger->Reserve(Request(limits));
      ASSERT_TRUE(held);
      held->Settle({10, 5, 0});
    }
    EXPECT_EQ(ledger->TotalUsage()->at(0).requests, 25);
  }
  EXPECT_EQ(state->takes, 3) << "a hundredth of the limit each time";
  EXPECT_EQ(state->taken.requests, 25) << "the rest of the lease is given back at the end";
  std::int64_t used = 0;
  for (const store::UsageRow& row : state->usage) used += row.requests;
  EXPECT_EQ(used, 25);
}

TEST(SharedQuota, WithoutThePoolOnlyTheLeaseIsServed) {
  const auto state = std::make_shared<FakePool::State>();
  ManualClock clock;
  const auto ledger = Shared(state, clock);
  const TenantLimits limits{.requests_per_minute = 200};  // leases of two
  auto first = ledger->Reserve(Request(limits));
  ASSERT_TRUE(first);
  {
    std::lock_guard lock(state->mutex);
    state->down = true;
  }
  auto second = ledger->Reserve(Request(limits));
  EXPECT_TRUE(second);
  for (int i = 0; i < 3; ++i) {
    const auto refused = ledger->Reserve(Request(limits));
    ASSERT_FALSE(refused);
    EXPECT_EQ(api::HttpStatus(refused.error().error), 503);
    EXPECT_GT(refused.error().retry_after, Nanos{});
  }
  EXPECT_EQ(state->takes, 2) << "a pool that failed is left alone for a while";
  EXPECT_EQ(ledger->store_failures(), 1u);
  EXPECT_TRUE(ledger->Reserve(Request({}))) << "tenants without limits need no lease";
  second->Release();
  EXPECT_TRUE(ledger->Reserve(Request(limits))) << "what was given back is there again";
  clock.Advance(QuotaLedger::kPoolPause);
  auto third = ledger->Reserve(Request(limits));
  auto fourth = ledger->Reserve(Request(limits));
  EXPECT_EQ(state->takes, 3) << "and then it is asked again";
}

TEST(SharedQuota, APoolThatHangsHoldsOnlyThoseWhoNeedIt) {
  const auto state = std::make_shared<FakePool::State>();
  ManualClock clock;
  const auto ledger = Shared(state, clock);
  const TenantLimits limits{.requests_per_minute = 300};  // leases of three
  auto first = ledger->Reserve(Request(limits));
  ASSERT_TRUE(first);
  {
    std::lock_guard lock(state->mutex);
    state->hangs = true;
  }
  QuotaRequest other = Request(limits);
  other.tenant = "other";
  ASSERT_FALSE(ledger->TryReserve(other)) << "the pool must be asked";
  std::optional<QuotaLedger::Held> late, behind;
  std::thread needs([&] { late.emplace(ledger->Reserve(other)); });
  {
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->takes == 2; });
  }
  std::thread follows([&] { behind.emplace(ledger->Reserve(other)); });
  // Nobody else waits: leased calls, calls without limits, settling.
  for (int i = 0; i < 2; ++i) {
    const auto held = ledger->TryReserve(Request(limits));
    ASSERT_TRUE(held && *held) << "the rest of its lease";
    EXPECT_TRUE(*ledger->TryReserve(Request({})));
  }
  first->Settle({100, 50, 0});
  EXPECT_FALSE(ledger->TryReserve(other));
  {
    std::lock_guard lock(state->mutex);
    state->hangs = false;
    state->down = true;
    state->changed.notify_all();
  }
  needs.join();
  follows.join();
  for (const auto& refused : {&late, &behind}) {
    ASSERT_FALSE(**refused);
    EXPECT_EQ((*refused)->error().error.kind, ErrorKind::kUnavailable);
  }
  EXPECT_EQ(state->takes, 2) << "who waited behind did not try again";
  ASSERT_TRUE(ledger->TryReserve(other)) << "and for a while nobody does";
  const auto refusals = ledger->Refusals();
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].limit, "store");
  EXPECT_EQ(refusals[0].tenant, "other");
  EXPECT_EQ(refusals[0].count, 3u);
  {
    std::lock_guard lock(state->mutex);
    state->down = false;
  }
  clock.Advance(QuotaLedger::kPoolPause);
  EXPECT_TRUE(ledger->Reserve(other)) << "then it is asked again";
}

// Two gateways with 32 clients each on one real PostgreSQL server, on a budget for 1,000 calls.
TEST(SharedQuota, ABudgetIsExactOverTwoGateways) {
  std::string why;
  const auto server = store::TestPostgres::Start(why);
  if (server == nullptr) GTEST_SKIP() << why;
  constexpr int kGateways = 2, kClients = 32, kBudget = 1000;
  // 100 x 1,000 + 50 x 2,000 nano-USD a call.
  const TenantLimits limits{.nano_usd_per_month = kBudget * 200'000};
  std::vector<std::shared_ptr<QuotaLedger>> gateways;
  for (int i = 0; i < kGateways; ++i) {
    auto pool = store::PostgresQuotaPool::Open(server->Url());
    ASSERT_TRUE(pool) << pool.error().message;
    gateways.push_back(*QuotaLedger::CreateShared(std::move(*pool), {[] { return kNow; }}));
  }
  std::atomic<int> served{0}, refused{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < kGateways * kClients; ++i) {
    clients.emplace_back([&, i] {
      QuotaLedger& gateway = *gateways[static_cast<std::size_t>(i % kGateways)];
      while (true) {
        auto held = gateway.Reserve(Request(limits));
        if (!held) {
          EXPECT_EQ(held.error().error.code, api::kInsufficientQuota) << held.error().error.message;
          ++refused;
          return;
        }
        ++served;
        held->Settle({100, 50, 0});
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(served.load(), kBudget);
  EXPECT_EQ(refused.load(), kGateways * kClients);
  gateways.pop_back();  // sends its part
  gateways.pop_back();
  const auto books = store::PostgresQuotaPool::Open(server->Url());
  ASSERT_TRUE(books);
  const auto usage = (*books)->Usage();
  ASSERT_TRUE(usage);
  ASSERT_EQ(usage->size(), 1u);
  EXPECT_EQ(usage->at(0).requests, kBudget);
  EXPECT_EQ(usage->at(0).nano_usd, kBudget * 200'000);
  EXPECT_EQ((*books)->Quotas()->at(0).month_nano_usd, kBudget * 200'000);
}

}  // namespace
}  // namespace tare::gateway
