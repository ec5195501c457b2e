#include "store/quota_pool.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>
#include <vector>

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

TEST_F(QuotaPoolTest, RowsOfTheSameKeyInOneSendAddUp) {
  const UsageRow row{10, tenant_, "m \"quoted\" \xff", 1, 2, 3, 4, 5};
  const std::array<UsageRow, 2> twice = {row, row};
  ASSERT_TRUE(pool_->AddUsage(twice));
  ASSERT_TRUE(pool_->AddUsage(twice));
  const auto rows = pool_->Usage();
  ASSERT_TRUE(rows);
  for (const UsageRow& found : *rows) {
    if (found.tenant != tenant_) continue;
    EXPECT_EQ(found.requests, 4) << found.model;
  }
}

// Speaks as much of PostgreSQL's protocol as it takes to answer every statement with no rows, those
// with values after `pause`: none of them is late, but a lease takes a dozen.
class SlowPostgres {
 public:
  explicit SlowPostgres(std::chrono::milliseconds pause, bool silent = false)
      : pause_(pause), silent_(silent) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~SlowPostgres() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  std::string Url() const {
    return "postgresql://x@127.0.0.1:" + std::to_string(port_) +
           "/x?sslmode=disable&gssencmode=disable";
  }
  int statements() const { return statements_.load(); }

 private:
  void Serve() {
    while (true) {
      const int client = ::accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      clients_.emplace_back([this, client] {
        Talk(client);
        ::close(client);
      });
    }
  }
  static bool Read(int fd, void* into, std::size_t size) {
    return ::recv(fd, into, size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }
  static bool Skip(int fd) {  // a length, and what it counts
    std::uint32_t length = 0;
    if (!Read(fd, &length, 4)) return false;
    std::string rest(ntohl(length) - 4, 0);
    return Read(fd, rest.data(), rest.size());
  }
  void Talk(int fd) {
    using namespace std::string_view_literals;
    constexpr auto kReady = "Z\0\0\0\5I"sv;
    const auto send = [fd](std::string_view text) {
      return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(text.size());
    };
    if (!Skip(fd)) return;
    char type = 0;
    if (silent_) {
      Read(fd, &type, 1);  // until the client has gone
      return;
    }
    if (!send("R\0\0\0\x08\0\0\0\0"sv) || !send(kReady)) return;
    while (Read(fd, &type, 1) && Skip(fd)) {
      if (type != 'Q' && type != 'S') continue;  // parts of a statement with values
      if (type == 'S') {
        ++statements_;
        std::this_thread::sleep_for(pause_);  // what is slow here is the subject
      }
      if (type == 'S' && !send("1\0\0\0\x04"
                               "2\0\0\0\x04n\0\0\0\x04"sv)) {
        return;
      }
      if (!send("C\0\0\0\x0dSELECT 0\0"sv) || !send(kReady)) return;
    }
  }

  const std::chrono::milliseconds pause_;
  const bool silent_;  // takes connections and says nothing
  int listener_ = -1, port_ = 0;
  std::atomic<int> statements_{0};
  std::thread thread_;
  std::vector<std::jthread> clients_;  // of the accepting thread
};

// However slow the machine is, twelve statements of 30 ms take longer than 300 ms.
TEST(QuotaPool, SlowStatementsShareOneTimeLimit) {
  const SlowPostgres server(std::chrono::milliseconds(30));
  const auto pool = PostgresQuotaPool::Open(server.Url(), std::chrono::milliseconds(300));
  ASSERT_TRUE(pool) << pool.error().message;
  const auto lease = (*pool)->Take({"t", 1, 1, {1, 0, 0}, {1, 0, 0}, 10, {}, {}});
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error().message, "quota database: no answer within 300 ms");
  EXPECT_LT(server.statements(), 12);
}

TEST(QuotaPool, ASilentServerHoldsNobodyForLong) {
  const SlowPostgres server(std::chrono::milliseconds(30), /*silent=*/true);
  const auto pool = PostgresQuotaPool::Open(server.Url(), std::chrono::milliseconds(20));
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().message, "quota database: no answer within 20 ms");
}

TEST(QuotaPool, SaysThatTheDatabaseIsNotThere) {
  const auto pool = PostgresQuotaPool::Open("postgresql://nobody@/none?host=/nonexistent");
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().kind, ErrorKind::kUnavailable);
  EXPECT_NE(pool.error().message.find("/nonexistent"), std::string::npos) << pool.error().message;
}

}  // namespace
}  // namespace tare::store
