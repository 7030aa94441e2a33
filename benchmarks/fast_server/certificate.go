package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log"
	"math/big"
	"net"
	"time"
)

const certificateLives = 30 * 24 * time.Hour

// makeCertificate makes an authority and, signed by it, this server's certificate. Some clients
// refuse an authority that serves by itself.
func makeCertificate() (tls.Certificate, []byte) {
	authorityKey, serverKey := newKey(), newKey()
	authority := template("magic-committer benchmark authority", 1)
	authority.IsCA = true
	authority.KeyUsage = x509.KeyUsageCertSign
	server := template("localhost", 2)
	server.KeyUsage = x509.KeyUsageDigitalSignature
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.DNSNames = []string{"localhost"}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	authorityBytes := sign(authority, authority, &authorityKey.PublicKey, authorityKey)
	serverBytes := sign(server, authority, &serverKey.PublicKey, authorityKey)
	made := tls.Certificate{Certificate: [][]byte{serverBytes}, PrivateKey: serverKey}
	return made, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityBytes})
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	return key
}

func template(name string, number int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber:          big.NewInt(number),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(certificateLives),
		BasicConstraintsValid: true,
	}
}

func sign(one, by *x509.Certificate, of *ecdsa.PublicKey, key *ecdsa.PrivateKey) []byte {
	made, err := x509.CreateCertificate(rand.Reader, one, by, of, key)
	if err != nil {
		log.Fatal(err)
	}
	return made
}
