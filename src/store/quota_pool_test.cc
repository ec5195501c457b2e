#include "store/quota_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "store/test_postgres.h"

namespace tare::store {
namespace {

class QuotaPoolTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = TestPostgres::Start(why_); }
  static void TearDownTestSuite() { server_.reset(); }
  void SetUp() override {
    if (server_ == nullptr) GTEST_SKIP() << why_;
    pool_ = Open();
    tenant_ = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  static std::unique_ptr<PostgresQuotaPool> Open() {
    auto pool = PostgresQuotaPool::Open(server_->Url());
    EXPECT_TRUE(pool) << pool.error().message;
    return pool ? std::move(*pool) : nullptr;
  }
  LeaseRequest Ask(std::int64_t need, std::int64_t want, std::int64_t limit) const {
    LeaseRequest request;
    request.tenant = tenant_;
    request.minute = 100;
    request.month = 10;
    request.need.requests = need;
    request.want.requests = want;
    request.limit_requests = limit;
    return request;
  }

  static inline std::string why_;
  static inline std::unique_ptr<TestPostgres> server_;
  std::unique_ptr<PostgresQuotaPool> pool_;
  std::string tenant_;
};

TEST_F(QuotaPoolTest, LeasesShrinkAsTheBudgetRunsOut) {
  EXPECT_EQ(pool_->Take(Ask(1, 10, 100))->amounts.requests, 10);
  EXPECT_EQ(pool_->Take(Ask(1, 50, 100))->amounts.requests, 11) << "an eighth of 90";
  EXPECT_EQ(pool_->Take(Ask(75, 75, 100))->amounts.requests, 75) << "what is needed";
  auto lease = pool_->Take(Ask(1, 50, 100));
  EXPECT_EQ(lease->amounts.requests, 1);
  EXPECT_EQ(lease->taken.minute_requests, 97);
  lease = pool_->Take(Ask(4, 4, 100));
  EXPECT_FALSE(lease->granted);
  EXPECT_EQ(lease->taken.minute_requests, 97) << "all or nothing, and what there is is told";
  EXPECT_TRUE(pool_->Take(Ask(3, 3, 100))->granted);
}

TEST_F(QuotaPoolTest, WindowsRollAndOnlyForward) {
  LeaseRequest request = Ask(5, 5, 5);
  request.need.nano_usd = request.want.nano_usd = 7;
  request.limit_nano_usd = 10;
  EXPECT_TRUE(pool_->Take(request)->granted);
  request.minute = 99;  // a gateway whose clock is behind
  EXPECT_FALSE(pool_->Take(request)->granted);
  request.minute = 101;
  EXPECT_FALSE(pool_->Take(request)->granted) << "the month's money is used";
  request.need.nano_usd = request.want.nano_usd = 3;
  auto lease = pool_->Take(request);
  EXPECT_TRUE(lease->granted);
  EXPECT_EQ(lease->taken.minute, 101);
  EXPECT_EQ(lease->taken.minute_requests, 5);
  EXPECT_EQ(lease->taken.month_nano_usd, 10);
  request.month = 11;
  request.minute = 102;
  EXPECT_EQ(pool_->Take(request)->taken.month_nano_usd, 3);
}

TEST_F(QuotaPoolTest, GivesBackToTheWindowsItCameFrom) {
  EXPECT_TRUE(pool_->Take(Ask(8, 8, 10))->granted);
  EXPECT_TRUE(pool_->GiveBack(tenant_, 99, 9, {5, 0, 0}));  // over: nothing
  EXPECT_FALSE(pool_->Take(Ask(3, 3, 10))->granted);
  EXPECT_TRUE(pool_->GiveBack(tenant_, 100, 10, {5, 0, 0}));
  EXPECT_EQ(pool_->Take(Ask(7, 7, 10))->taken.minute_requests, 10);
}

TEST_F(QuotaPoolTest, IsExactUnderConcurrency) {
  constexpr int kGateways = 2, kClients = 8, kBudget = 1000;
  std::atomic<std::int64_t> taken{0};
  std::vector<std::unique_ptr<PostgresQuotaPool>> pools;
  for (int i = 0; i < kGateways; ++i) pools.push_back(Open());
  std::vector<std::thread> clients;
  for (int i = 0; i < kGateways * kClients; ++i) {
    clients.emplace_back([&, i] {
      while (true) {
        const auto lease =
            pools[static_cast<std::size_t>(i % kGateways)]->Take(Ask(1, 1 + i, kBudget));
        ASSERT_TRUE(lease) << lease.error().message;
        if (!lease->granted) {
          EXPECT_EQ(lease->taken.minute_requests, kBudget) << "refused only when nothing is left";
          return;
        }
        taken += lease->amounts.requests;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(taken.load(), kBudget);
}

TEST_F(QuotaPoolTest, AddsUpUsageOfAllGateways) {
  const auto other = Open();
  const UsageRow row{10, tenant_, "m", 1, 2, 3, 4, 5};
  EXPECT_TRUE(pool_->AddUsage({&row, 1}));
  EXPECT_TRUE(other->AddUsage({&row, 1}));
  const auto rows = other->Usage();
  ASSERT_TRUE(rows);
  for (const UsageRow& found : *rows) {
    if (found.tenant != tenant_) continue;
    EXPECT_EQ(found.requests, 2);
    EXPECT_EQ(found.nano_usd, 10);
    return;
  }
  FAIL() << "the tenant is not there";
}

TEST(QuotaPool, SaysThatTheDatabaseIsNotThere) {
  const auto pool = PostgresQuotaPool::Open("postgresql://nobody@/none?host=/nonexistent");
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().kind, ErrorKind::kUnavailable);
  EXPECT_NE(pool.error().message.find("/nonexistent"), std::string::npos) << pool.error().message;
}

}  // namespace
}  // namespace tare::store
