cgx_test(handshake_test SOURCES handshake_test.cc LIBS cgx_transport)
cgx_test(interfaces_test SOURCES interfaces_test.cc LIBS cgx_transport)
cgx_test(ledger_test SOURCES ledger_test.cc LIBS cgx_transport)
cgx_test(exchange_test SOURCES exchange_test.cc LIBS cgx_transport)
