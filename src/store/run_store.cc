#include "store/run_store.h"

#include <sqlite3.h>
#include <zstd.h>

#include <random>

#include "base/files.h"
#include "base/rfc3339.h"

namespace tare::store {
namespace {

constexpr int kSchemaVersion = 1;
constexpr int kBusyTimeoutMs = 5000;
constexpr std::size_t kDocumentLimit = std::size_t{1} << 30;  // bytes, of one document unpacked

constexpr const char* kCreate = R"(
  CREATE TABLE runs (
    id TEXT PRIMARY KEY NOT NULL,
    tag TEXT NOT NULL, name TEXT NOT NULL, started_at TEXT NOT NULL,
    url TEXT NOT NULL, model TEXT NOT NULL,
    valid INTEGER NOT NULL, ok INTEGER NOT NULL, failed INTEGER NOT NULL,
    requests_per_s REAL NOT NULL, output_tokens_per_s REAL NOT NULL,
    document BLOB NOT NULL
  ) STRICT;
  CREATE INDEX runs_by_name ON runs (name, id);
)";

Result<std::string> Compress(std::string_view text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size =
      ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), /*level=*/3);
  if (ZSTD_isError(size) != 0) {
    return Fail(ErrorKind::kInternal, "cannot compress a run: {}", ZSTD_getErrorName(size));
  }
  packed.resize(size);
  return packed;
}

Result<std::string> Decompress(std::string_view packed) {
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > kDocumentLimit) {
    return Fail(ErrorKind::kCorrupt, "a stored run is damaged: its compressed form has no size");
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  const std::size_t got = ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size());
  if (ZSTD_isError(got) != 0 || got != text.size()) {
    return Fail(ErrorKind::kCorrupt, "a stored run is damaged: {}", ZSTD_getErrorName(got));
  }
  return text;
}

std::string StringIn(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

// One prepared statement; finalized with the object.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) : db_(db) {
    code_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr);
  }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement() { sqlite3_finalize(statement_); }

  Statement& Bind(int index, std::string_view text) {
    return Note(sqlite3_bind_text64(statement_, index, text.data(), text.size(), SQLITE_TRANSIENT,
                                    SQLITE_UTF8));
  }
  Statement& BindBlob(int index, std::string_view bytes) {
    return Note(
        sqlite3_bind_blob64(statement_, index, bytes.data(), bytes.size(), SQLITE_TRANSIENT));
  }
  Statement& Bind(int index, std::int64_t value) {
    return Note(sqlite3_bind_int64(statement_, index, value));
  }
  Statement& Bind(int index, double value) {
    return Note(sqlite3_bind_double(statement_, index, value));
  }

  // True when there is a row to read.
  Result<bool> Step() {
    if (code_ == SQLITE_OK) code_ = sqlite3_step(statement_);
    if (code_ == SQLITE_ROW) {
      code_ = SQLITE_OK;
      return true;
    }
    if (code_ == SQLITE_DONE) return false;
    return Fail(ErrorKind::kIo, "run store: {}", sqlite3_errmsg(db_));
  }
  int code() const { return code_; }

  std::string Text(int column) const {
    const void* data = sqlite3_column_blob(statement_, column);
    const int size = sqlite3_column_bytes(statement_, column);
    return data == nullptr
               ? std::string()
               : std::string(static_cast<const char*>(data), static_cast<std::size_t>(size));
  }
  std::int64_t Int(int column) const { return sqlite3_column_int64(statement_, column); }
  double Real(int column) const { return sqlite3_column_double(statement_, column); }

 private:
  Statement& Note(int code) {
    if (code_ == SQLITE_OK) code_ = code;
    return *this;
  }
  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
};

}  // namespace

struct RunStore::Connection {
  sqlite3* db = nullptr;
  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { sqlite3_close(db); }

  Status Execute(const char* sql) {
    if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
    return Fail(ErrorKind::kIo, "run store: {}", sqlite3_errmsg(db));
  }
};

std::string NewRunId(std::chrono::system_clock::time_point started) {
  static thread_local std::mt19937 random{std::random_device{}()};
  std::string digits;  // of "2026-11-30T10:53:42.417Z"
  for (const char c : FormatRfc3339(started)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  return fmt::format("{}-{}-{}-{:04x}", digits.substr(0, 8), digits.substr(8, 6),
                     digits.substr(14, 3), random() & 0xffffu);
}

RunStore::RunStore(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
RunStore::RunStore(RunStore&&) noexcept = default;
RunStore& RunStore::operator=(RunStore&&) noexcept = default;
RunStore::~RunStore() = default;

Result<RunStore> RunStore::OpenDefault() {
  TARE_TRY(const std::filesystem::path dir, UserDataDir());
  return Open(dir / "runs.db");
}

Result<RunStore> RunStore::Open(const std::filesystem::path& file) {
  auto connection = std::make_unique<Connection>();
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  if (sqlite3_open_v2(file.c_str(), &connection->db, flags, nullptr) != SQLITE_OK) {
    return Fail(ErrorKind::kIo, "cannot open the run store '{}': {}", file.string(),
                sqlite3_errmsg(connection->db));
  }
  sqlite3_busy_timeout(connection->db, kBusyTimeoutMs);
  const auto prepare = [&]() -> Status {
    TARE_RETURN_IF_ERROR(connection->Execute("PRAGMA journal_mode = WAL"));
    TARE_RETURN_IF_ERROR(connection->Execute("PRAGMA synchronous = NORMAL"));
    TARE_RETURN_IF_ERROR(connection->Execute("BEGIN IMMEDIATE"));
    std::int64_t version = 0;
    {
      Statement read(connection->db, "PRAGMA user_version");
      TARE_TRY(const bool row, read.Step());
      if (row) version = read.Int(0);
    }
    if (version > kSchemaVersion) {
      return Fail(ErrorKind::kUnsupported,
                  "it was written by a newer tare (layout {}, this one knows {}); update tare",
                  version, kSchemaVersion);
    }
    if (version == 0) {
      TARE_RETURN_IF_ERROR(connection->Execute(kCreate));
      TARE_RETURN_IF_ERROR(
          connection->Execute(fmt::format("PRAGMA user_version = {}", kSchemaVersion).c_str()));
    }
    return connection->Execute("COMMIT");
  };
  if (Status ready = prepare(); !ready) {
    return Context(std::move(ready).error(), "cannot use the run store '{}'", file.string());
  }
  return RunStore(std::move(connection));
}

Result<std::string> RunStore::Save(RunRecord record) {
  const auto now = std::chrono::system_clock::now();
  if (record.started_at.empty()) record.started_at = FormatRfc3339(now);
  const bool choose_id = record.id.empty();
  const auto started = ParseRfc3339(record.started_at);
  constexpr int kTries = 16;  // 4 random digits: a clash needs two runs in the same millisecond
  for (int attempt = 0; attempt < kTries; ++attempt) {
    if (choose_id) record.id = NewRunId(started.value_or(now));
    const std::string text =
        ToJson(record).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    TARE_TRY(const std::string packed, Compress(text));
    Statement insert(connection_->db,
                     "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    insert.Bind(1, record.id).Bind(2, record.tag).Bind(3, record.name).Bind(4, record.started_at);
    insert.Bind(5, StringIn(record.target, "url")).Bind(6, StringIn(record.target, "model"));
    insert.Bind(7, std::int64_t{record.valid});
    insert.Bind(8, static_cast<std::int64_t>(record.summary.ok));
    insert.Bind(9, static_cast<std::int64_t>(record.summary.failed));
    insert.Bind(10, record.summary.requests_per_s).Bind(11, record.summary.output_tokens_per_s);
    insert.BindBlob(12, packed);
    const Result<bool> done = insert.Step();
    if (done) return record.id;
    if ((insert.code() & 0xff) != SQLITE_CONSTRAINT) return tl::unexpected(done.error());
    if (!choose_id) {
      return Fail(ErrorKind::kInvalidArgument, "the run store already has a run '{}'", record.id);
    }
  }
  return Fail(ErrorKind::kInternal, "run store: no free id for {}", record.started_at);
}

Result<std::vector<RunListing>> RunStore::List(std::size_t limit) const {
  Statement select(connection_->db,
                   "SELECT id, tag, name, started_at, url, model, valid, ok, failed, "
                   "requests_per_s, output_tokens_per_s FROM runs ORDER BY id DESC LIMIT ?");
  select.Bind(1, limit == 0 ? std::int64_t{-1} : static_cast<std::int64_t>(limit));
  std::vector<RunListing> runs;
  while (true) {
    TARE_TRY(const bool row, select.Step());
    if (!row) return runs;
    RunListing run;
    run.id = select.Text(0);
    run.tag = select.Text(1);
    run.name = select.Text(2);
    run.started_at = select.Text(3);
    run.url = select.Text(4);
    run.model = select.Text(5);
    run.valid = select.Int(6) != 0;
    run.ok = static_cast<std::uint64_t>(select.Int(7));
    run.failed = static_cast<std::uint64_t>(select.Int(8));
    run.requests_per_s = select.Real(9);
    run.output_tokens_per_s = select.Real(10);
    runs.push_back(std::move(run));
  }
}

Result<std::string> RunStore::ResolveId(std::string_view id_or_name, bool names) const {
  if (names && id_or_name == "latest") {
    Statement select(connection_->db, "SELECT id FROM runs ORDER BY id DESC LIMIT 1");
    TARE_TRY(const bool row, select.Step());
    if (row) return select.Text(0);
    return Fail(ErrorKind::kNotFound, "there are no runs yet; `tare load URL` makes one");
  }
  // The exact id first, then the newest of that name, then the beginning of an id.
  const char* by_id = "SELECT id FROM runs WHERE id = ?";
  const char* by_name = "SELECT id FROM runs WHERE name = ? ORDER BY id DESC LIMIT 1";
  for (const char* sql : {by_id, by_name}) {
    if (sql == by_name && (!names || id_or_name.empty())) continue;
    Statement select(connection_->db, sql);
    select.Bind(1, id_or_name);
    TARE_TRY(const bool row, select.Step());
    if (row) return select.Text(0);
  }
  Statement select(connection_->db,
                   "SELECT id FROM runs WHERE substr(id, 1, length(?1)) = ?1 AND length(?1) > 0 "
                   "ORDER BY id LIMIT 2");
  select.Bind(1, id_or_name);
  TARE_TRY(const bool first, select.Step());
  if (!first) {
    return Fail(ErrorKind::kNotFound, "no run '{}'; `tare runs list` shows what there is",
                id_or_name);
  }
  std::string id = select.Text(0);
  TARE_TRY(const bool second, select.Step());
  if (second) {
    return Fail(ErrorKind::kInvalidArgument,
                "'{}' is the beginning of several run ids ({}, {}, …); write more of it",
                id_or_name, id, select.Text(0));
  }
  return id;
}

Result<RunRecord> RunStore::Load(std::string_view id_or_name) const {
  TARE_TRY(const std::string id, ResolveId(id_or_name, /*names=*/true));
  Statement select(connection_->db, "SELECT document FROM runs WHERE id = ?");
  select.Bind(1, id);
  TARE_TRY(const bool row, select.Step());
  if (!row) return Fail(ErrorKind::kNotFound, "run '{}' was deleted meanwhile", id);
  TARE_TRY(const std::string text, Decompress(select.Text(0)));
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) {
    return Fail(ErrorKind::kCorrupt, "stored run '{}' is damaged: it is not JSON", id);
  }
  return RunRecordFromJson(document);
}

Result<std::string> RunStore::Delete(std::string_view id) {
  TARE_TRY(std::string full, ResolveId(id, /*names=*/false));
  Statement remove(connection_->db, "DELETE FROM runs WHERE id = ?");
  remove.Bind(1, full);
  TARE_TRY([[maybe_unused]] const bool row, remove.Step());
  return full;
}

}  // namespace tare::store
