#include "store/quota_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>

namespace tare::store {
namespace {

class QuotaStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tare-quota-XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
    file_ = dir_ / "quotas.db";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path dir_, file_;
};

TEST_F(QuotaStoreTest, KeepsTheNewestRowOfAKey) {
  {
    auto store = QuotaStore::Open(file_);
    ASSERT_TRUE(store) << store.error().message;
    const std::array<QuotaRow, 1> first = {{{"a", 1, 2, 3, 4, 5}}};
    const std::array<UsageRow, 1> usage = {{{24311, "a", "m", 1, 10, 2, 5, 99}}};
    ASSERT_TRUE(store->Save(first, usage));
    const std::array<QuotaRow, 2> second = {{{"a", 7, 8, 9, 10, 11}, {"b", 1, 1, 1, 1, 1}}};
    ASSERT_TRUE(store->Save(second, {}));
    ASSERT_TRUE(store->Checkpoint());
  }
  auto store = QuotaStore::Open(file_);
  ASSERT_TRUE(store) << store.error().message;
  const auto quotas = store->Quotas();
  ASSERT_TRUE(quotas);
  ASSERT_EQ(quotas->size(), 2u);
  EXPECT_EQ((*quotas)[0].month_nano_usd, 11);
  const auto usage = store->Usage();
  ASSERT_EQ(usage->size(), 1u);
  EXPECT_EQ((*usage)[0].model, "m");
  EXPECT_EQ((*usage)[0].nano_usd, 99);
}

TEST_F(QuotaStoreTest, WhatWasSavedOutlivesAKilledProcess) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto store = QuotaStore::Open(file_);
    const std::array<QuotaRow, 1> rows = {{{"a", 1, 41, 0, 0, 0}}};
    const char ok = store && store->Save(rows, {}) ? '1' : '0';
    if (::write(pipe[1], &ok, 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char ok = 0;
  ASSERT_EQ(::read(pipe[0], &ok, 1), 1);
  EXPECT_EQ(ok, '1');
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
  auto store = QuotaStore::Open(file_);
  ASSERT_TRUE(store) << store.error().message;
  const auto quotas = store->Quotas();
  ASSERT_EQ(quotas->size(), 1u);
  EXPECT_EQ((*quotas)[0].minute_requests, 41);
}

TEST_F(QuotaStoreTest, BelongsToOne) {
  auto first = QuotaStore::Open(file_);
  ASSERT_TRUE(first) << first.error().message;
  const auto second = QuotaStore::Open(file_);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, ::testing::HasSubstr("in use by another gateway"));
}

TEST_F(QuotaStoreTest, NamesWhatItCannotOpen) {
  std::ofstream(file_) << std::string(4096, 'x');
  EXPECT_FALSE(QuotaStore::Open(file_));
  EXPECT_THAT(QuotaStore::Open(dir_ / "no" / "quotas.db").error().message,
              ::testing::HasSubstr("quotas.db"));
}

}  // namespace
}  // namespace tare::store
