// Test helper: a self-signed certificate for 127.0.0.1 and its key, as PEM files that go with it.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace tare::net {

class TestCertificate {
 public:
  TestCertificate() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tare-tls-XXXXXX").string();
    dir_ = ::mkdtemp(pattern.data());
    certificate_file = (dir_ / "cert.pem").string();
    key_file = (dir_ / "key.pem").string();
    Renew();
  }
  ~TestCertificate() { std::filesystem::remove_all(dir_); }
  TestCertificate(const TestCertificate&) = delete;
  TestCertificate& operator=(const TestCertificate&) = delete;

  // Another certificate and key in the same files.
  void Renew() const {
    EVP_PKEY* key = EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");
    X509* certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME* name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("tare test"), -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    X509_EXTENSION* names =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
    X509_add_ext(certificate, names, -1);
    X509_EXTENSION_free(names);
    X509_sign(certificate, key, EVP_sha256());
    std::FILE* out = std::fopen(certificate_file.c_str(), "w");
    PEM_write_X509(out, certificate);
    std::fclose(out);
    out = std::fopen(key_file.c_str(), "w");
    PEM_write_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(out);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }

  std::string certificate_file, key_file;

 private:
  std::filesystem::path dir_;
};

}  // namespace tare::net
