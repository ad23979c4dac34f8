drop trigger if exists {table lost_claims}
