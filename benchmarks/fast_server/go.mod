module fast_server

go 1.21
