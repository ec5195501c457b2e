#include "store/quota_store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tare::store {
namespace {

constexpr int kSchemaVersion = 1;
constexpr int kBusyTimeoutMs = 5000;

constexpr const char* kCreate = R"(
  CREATE TABLE quotas (
    tenant TEXT PRIMARY KEY NOT NULL,
    minute INTEGER NOT NULL, minute_requests INTEGER NOT NULL, minute_tokens INTEGER NOT NULL,
    month INTEGER NOT NULL, month_nano_usd INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE usage (
    month INTEGER NOT NULL, tenant TEXT NOT NULL, model TEXT NOT NULL,
    requests INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL, nano_usd INTEGER NOT NULL,
    PRIMARY KEY (month, tenant, model)
  ) STRICT, WITHOUT ROWID;
)";
constexpr const char* kSaveQuota = "INSERT OR REPLACE INTO quotas VALUES (?, ?, ?, ?, ?, ?)";
constexpr const char* kSaveUsage = "INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?)";

struct Closer {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, Closer>;
using Prepared = std::unique_ptr<sqlite3_stmt, Closer>;

tl::unexpected<Error> Failure(sqlite3* db) {
  return Fail(ErrorKind::kIo, "quota store: {}", sqlite3_errmsg(db));
}

Result<Prepared> Prepare(sqlite3* db, const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr) !=
      SQLITE_OK) {
    return Failure(db);
  }
  return Prepared(statement);
}

Result<Database> OpenDatabase(const std::filesystem::path& file) {
  sqlite3* raw = nullptr;
  const int code =
      sqlite3_open_v2(file.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  Database db(raw);
  if (code != SQLITE_OK) {
    return Fail(ErrorKind::kIo, "cannot open the quota store '{}': {}", file.string(),
                raw != nullptr ? sqlite3_errmsg(raw) : "no memory");
  }
  sqlite3_busy_timeout(raw, kBusyTimeoutMs);
  return db;
}

Status Execute(sqlite3* db, const char* sql) {
  if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return Failure(db);
  return {};
}

void Bind(sqlite3_stmt* statement, int index, const std::string& text) {
  sqlite3_bind_text64(statement, index, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
}
void Bind(sqlite3_stmt* statement, int index, std::int64_t value) {
  sqlite3_bind_int64(statement, index, value);
}

template <typename... Values>
Status Run(sqlite3* db, sqlite3_stmt* statement, const Values&... values) {
  int index = 0;
  (Bind(statement, ++index, values), ...);
  const int code = sqlite3_step(statement);
  sqlite3_reset(statement);
  if (code != SQLITE_DONE) return Failure(db);
  return {};
}

std::string Text(sqlite3_stmt* statement, int column) {
  const void* data = sqlite3_column_blob(statement, column);
  const int size = sqlite3_column_bytes(statement, column);
  return data == nullptr
             ? std::string()
             : std::string(static_cast<const char*>(data), static_cast<std::size_t>(size));
}

Result<std::int64_t> SchemaVersion(sqlite3* db) {
  TARE_TRY(const Prepared query, Prepare(db, "PRAGMA user_version"));
  if (sqlite3_step(query.get()) != SQLITE_ROW) return Failure(db);
  return sqlite3_column_int64(query.get(), 0);
}

// Held as long as the store is open: two gateways would overwrite each other's counts.
class FileLock {
 public:
  FileLock() = default;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  Status Take(const std::filesystem::path& file) {
    const std::string name = file.string() + ".lock";
    fd_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (fd_ < 0) {
      return Fail(ErrorKind::kIo, "cannot open '{}': {}", name, std::strerror(errno));
    }
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      return Fail(ErrorKind::kUnavailable,
                  "the quota store '{}' is in use by another gateway: stop it, or name another "
                  "file as quota_store",
                  file.string());
    }
    return {};
  }

 private:
  int fd_ = -1;
};

}  // namespace

struct QuotaStore::Connection {
  FileLock lock;
  Database db;
  Database checkpoints;  // of its own, so that writing goes on while one runs
  Prepared begin, commit, rollback, save_quota, save_usage;
};

QuotaStore::QuotaStore(std::unique_ptr<Connection> connection)
    : connection_(std::move(connection)) {}
QuotaStore::QuotaStore(QuotaStore&&) noexcept = default;
QuotaStore& QuotaStore::operator=(QuotaStore&&) noexcept = default;
QuotaStore::~QuotaStore() = default;

Result<QuotaStore> QuotaStore::Open(const std::filesystem::path& file) {
  auto connection = std::make_unique<Connection>();
  TARE_RETURN_IF_ERROR(connection->lock.Take(file));
  TARE_TRY(connection->db, OpenDatabase(file));
  sqlite3* db = connection->db.get();
  // Checkpoints wait for the disk: they run on their own connection, never inside a Save.
  TARE_RETURN_IF_ERROR(
      Execute(db,
              "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0;"
              "BEGIN IMMEDIATE"));
  TARE_TRY(const std::int64_t version, SchemaVersion(db));
  if (version > kSchemaVersion) {
    return Fail(ErrorKind::kUnsupported,
                "the quota store '{}' was written by a newer version (schema {}, this knows {})",
                file.string(), version, kSchemaVersion);
  }
  if (version == 0) {
    TARE_RETURN_IF_ERROR(Execute(db, kCreate));
    TARE_RETURN_IF_ERROR(
        Execute(db, fmt::format("PRAGMA user_version={}", kSchemaVersion).c_str()));
  }
  TARE_RETURN_IF_ERROR(Execute(db, "COMMIT"));
  TARE_TRY(connection->checkpoints, OpenDatabase(file));
  TARE_TRY(connection->begin, Prepare(db, "BEGIN IMMEDIATE"));
  TARE_TRY(connection->commit, Prepare(db, "COMMIT"));
  TARE_TRY(connection->rollback, Prepare(db, "ROLLBACK"));
  TARE_TRY(connection->save_quota, Prepare(db, kSaveQuota));
  TARE_TRY(connection->save_usage, Prepare(db, kSaveUsage));
  return QuotaStore(std::move(connection));
}

Result<std::vector<QuotaRow>> QuotaStore::Quotas() const {
  sqlite3* db = connection_->db.get();
  TARE_TRY(const Prepared query, Prepare(db, "SELECT * FROM quotas"));
  std::vector<QuotaRow> rows;
  int code = SQLITE_OK;
  while ((code = sqlite3_step(query.get())) == SQLITE_ROW) {
    const auto integer = [&](int column) { return sqlite3_column_int64(query.get(), column); };
    rows.push_back(
        {Text(query.get(), 0), integer(1), integer(2), integer(3), integer(4), integer(5)});
  }
  if (code != SQLITE_DONE) return Failure(db);
  return rows;
}

Result<std::vector<UsageRow>> QuotaStore::Usage() const {
  sqlite3* db = connection_->db.get();
  TARE_TRY(const Prepared query, Prepare(db, "SELECT * FROM usage"));
  std::vector<UsageRow> rows;
  int code = SQLITE_OK;
  while ((code = sqlite3_step(query.get())) == SQLITE_ROW) {
    const auto integer = [&](int column) { return sqlite3_column_int64(query.get(), column); };
    rows.push_back({integer(0), Text(query.get(), 1), Text(query.get(), 2), integer(3), integer(4),
                    integer(5), integer(6), integer(7)});
  }
  if (code != SQLITE_DONE) return Failure(db);
  return rows;
}

Status QuotaStore::Save(std::span<const QuotaRow> quotas, std::span<const UsageRow> usage) {
  sqlite3* db = connection_->db.get();
  TARE_RETURN_IF_ERROR(Run(db, connection_->begin.get()));
  const auto write = [&]() -> Status {
    for (const QuotaRow& row : quotas) {
      TARE_RETURN_IF_ERROR(Run(db, connection_->save_quota.get(), row.tenant, row.minute,
                               row.minute_requests, row.minute_tokens, row.month,
                               row.month_nano_usd));
    }
    for (const UsageRow& row : usage) {
      TARE_RETURN_IF_ERROR(Run(db, connection_->save_usage.get(), row.month, row.tenant, row.model,
                               row.requests, row.prompt_tokens, row.cached_tokens,
                               row.output_tokens, row.nano_usd));
    }
    return Run(db, connection_->commit.get());
  };
  Status written = write();
  if (!written) {
    if (const Status undone = Run(db, connection_->rollback.get()); !undone) return undone;
  }
  return written;
}

Status QuotaStore::Checkpoint() {
  sqlite3* db = connection_->checkpoints.get();
  if (sqlite3_wal_checkpoint_v2(db, nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr) !=
      SQLITE_OK) {
    return Failure(db);
  }
  return {};
}

}  // namespace tare::store
