#include "store/run_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "base/files.h"
#include "base/rfc3339.h"

namespace tare::store {
namespace {

using ::testing::HasSubstr;

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tare-store-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

RunRecord SampleRecord() {
  RunRecord record;
  record.name = "int4";
  record.started_at = "2026-11-30T10:53:42.417Z";
  record.valid = false;
  record.checks = {{"errors", false, "3 of 103 requests failed"}};
  record.summary.total = 103;
  record.summary.ok = 100;
  record.summary.failed = 3;
  record.summary.errors_by_kind = {{"timeout", 2}, {"connect_refused", 1}};
  record.summary.requests_per_s = 12.5;
  record.summary.ttft.sent = {
      .mean = 0.1, .p50 = 0.09, .p90 = 0.2, .p95 = 0.25, .p99 = 0.3, .max = 0.4, .n = 100};
  record.summary.ttft.sent.p50_interval = {0.08, 0.1};
  record.target = {{"url", "http://127.0.0.1:8000"}, {"model", "m"}};
  record.workload = {{"seed", 7}};
  return record;
}

TEST(RunRecord, JsonHasTheStableKeysAndNoUnfoundedPercentiles) {
  const nlohmann::json document = ToJson(SampleRecord());
  EXPECT_EQ(document["schema"], "tare.run/1");
  EXPECT_EQ(document["validity"]["verdict"], "invalid");
  EXPECT_EQ(document["summary"]["requests"]["failed"], 3);
  const auto& ttft = document["summary"]["latency_s"]["ttft"]["sent"];
  EXPECT_EQ(ttft["p90"], 0.2);
  EXPECT_TRUE(ttft["p95"].is_null()) << "100 samples do not carry a p95";
  EXPECT_TRUE(ttft["p99"].is_null());
  EXPECT_TRUE(document["summary"]["memory"]["peak_rss_bytes"].is_null());
  for (const char* metric : {"ttft", "itl", "tpot", "e2e"}) {
    for (const char* from : {"sent", "intended"}) {
      for (const char* key : {"mean", "p50", "p90", "p95", "p99", "max", "n"}) {
        EXPECT_TRUE(document["summary"]["latency_s"][metric][from].contains(key)) << metric << key;
      }
    }
  }
}

TEST(RunRecord, ReadsBackWhatItWrote) {
  const nlohmann::json document = ToJson(SampleRecord());
  const auto again = RunRecordFromJson(document);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(ToJson(*again), document);
  EXPECT_TRUE(std::isnan(again->summary.ttft.sent.p99));
}

TEST(RunRecord, NamesTheKeyThatIsWrong) {
  const auto error_of = [](auto change) {
    nlohmann::json document = ToJson(SampleRecord());
    change(document);
    const auto record = RunRecordFromJson(document);
    return record ? std::string("accepted") : record.error().message;
  };
  EXPECT_THAT(error_of([](auto& d) { d["summary"]["rates"].erase("requests_per_s"); }),
              HasSubstr("'summary.rates.requests_per_s' is missing"));
  EXPECT_THAT(error_of([](auto& d) { d["summary"]["latency_s"]["itl"]["sent"]["n"] = "many"; }),
              HasSubstr("'summary.latency_s.itl.sent.n' is wrong"));
  EXPECT_THAT(error_of([](auto& d) { d["validity"]["checks"][0]["ok"] = 1; }),
              HasSubstr("'validity.checks[0].ok' is wrong"));
  EXPECT_THAT(error_of([](auto& d) { d["summary"]["requests"]["total"] = -1; }),
              HasSubstr("'summary.requests.total' is wrong"));
  EXPECT_THAT(error_of([](auto& d) { d["schema"] = "tare.run/2"; }), HasSubstr("tare.run/2"));
  EXPECT_THAT(error_of([](auto& d) { d = nlohmann::json::array({1}); }),
              HasSubstr("'document' is wrong"));
}

TEST(RunId, SortsByTime) {
  const auto early = ParseRfc3339("2026-11-30T10:53:42.417Z").value();
  const std::string id = NewRunId(early);
  EXPECT_EQ(id.substr(0, 20), "20261130-105342-417-");
  EXPECT_LT(id, NewRunId(early + std::chrono::milliseconds(1)));
}

TEST(RunStore, SavesListsLoadsAndDeletes) {
  TempDir dir;
  auto store = RunStore::Open(dir / "runs.db");
  ASSERT_TRUE(store.has_value()) << store.error().message;
  EXPECT_EQ(store->Load("latest").error().kind, ErrorKind::kNotFound);

  RunRecord first = SampleRecord();
  RunRecord second = SampleRecord();
  second.started_at = "2026-12-01T00:00:00.000Z";
  const std::string id1 = store->Save(first).value();
  const std::string id2 = store->Save(second).value();

  const auto list = store->List().value();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].id, id2);
  EXPECT_EQ(list[1].url, "http://127.0.0.1:8000");
  EXPECT_FALSE(list[1].valid);
  EXPECT_EQ(store->List(1)->size(), 1u);

  EXPECT_EQ(store->Load("int4")->id, id2) << "the newest of that name";
  EXPECT_EQ(store->Load("latest")->id, id2);
  EXPECT_EQ(store->Load("20261130")->id, id1);
  EXPECT_EQ(store->Load("2026").error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(store->Load("%").error().kind, ErrorKind::kNotFound);
  first.id = id1;
  EXPECT_EQ(ToJson(*store->Load(id1)), ToJson(first));

  EXPECT_FALSE(store->Delete("int4").has_value()) << "a name may stand for several runs";
  EXPECT_EQ(store->Delete("20261130").value(), id1);
  EXPECT_EQ(store->List()->size(), 1u);
  second.id = id2;
  EXPECT_FALSE(store->Save(second).has_value()) << "ids are unique";
}

TEST(RunStore, TwoConnectionsShareAFile) {
  TempDir dir;
  auto a = RunStore::Open(dir / "runs.db");
  auto b = RunStore::Open(dir / "runs.db");
  ASSERT_TRUE(a && b);
  ASSERT_TRUE(a->Save(SampleRecord()).has_value());
  ASSERT_TRUE(b->Save(SampleRecord()).has_value());
  EXPECT_EQ(a->List()->size(), 2u);
}

TEST(RunStore, SaysWhyItCannotOpen) {
  TempDir dir;
  EXPECT_THAT(RunStore::Open(dir / "missing/runs.db").error().message, HasSubstr("runs.db"));
  ASSERT_TRUE(
      WriteFileAtomic(dir / "text.db", "not a database, and long enough to be read").has_value());
  EXPECT_FALSE(RunStore::Open(dir / "text.db").has_value());
}

}  // namespace
}  // namespace tare::store
